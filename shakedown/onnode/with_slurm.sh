#!/bin/sh
# Run a command that needs slurmctld, as srun does, once slurmctld answers.
#
#     with_slurm.sh COMMAND...
#
# srun gives up at once where slurmctld cannot be reached ("Unable to confirm allocation"), so that a restart
# of slurmctld would end a good job at its next step. The wait is the site's acceptance.waits.slurm_silent_s,
# once a job: a step that waited in vain leaves the file that SHAKEDOWN_SLURM_SILENT_FILE names, and the later
# ones do not wait. Whatever else is wrong with Slurm, the command itself says best.
limit_s=${SHAKEDOWN_SLURM_SILENT_S:-600}
given_up=${SHAKEDOWN_SLURM_SILENT_FILE:-/dev/null/none}
waited_s=0
while [ -n "$SLURM_JOB_ID" ] && [ ! -e "$given_up" ]; do
  before_s=$(date +%s)
  said=$(LC_ALL=C timeout --kill-after=5 60 squeue --noheader --jobs="$SLURM_JOB_ID" --format=%i 2>&1 </dev/null)
  case $?:$said in
    124:* | 137:*) said='squeue did not end within 60 s' ;;
    *'Unable to contact slurm controller'* | *'timed out'*) ;;
    *'Zero Bytes were transmitted or received'* | *'standby mode'*) ;;
    *) break ;;
  esac
  if [ "$waited_s" -ge "$limit_s" ]; then
    echo "shakedown: Slurm has not answered for $limit_s s ($said)" >&2
    # A folder that cannot be written costs the later steps their own wait.
    { : >"$given_up"; } 2>/dev/null
    break
  fi
  [ "$waited_s" -gt 0 ] || echo "shakedown: waiting for Slurm ($said)" >&2
  sleep 5
  waited_s=$((waited_s + $(date +%s) - before_s))
done
exec "$@"
