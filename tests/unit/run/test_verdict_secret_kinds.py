"""What stands for a kind of secret, beside what looks like one and must stay."""

import json
import re
import time

import pytest

from shakedown.run.redact import redact, redact_bytes
from tests.kit.cases import cases

SECRET = "Zq7PlainSecret91x"  # noqa: S105  (made up)


def split(rows: str) -> list[str]:
    """Return the rows of a text that has several a line."""
    return re.split(r" ¦ |\n", rows.strip())


# Where the secret stands it says ¤.
SHAPES = (
    *split("""
MUNGE:AwQDAAC¤Q==: ¦ ipmitool -I lanplus -H bmc -U admin -P ¤ dcmi power reading
sshpass -p ¤ ssh admin@leaf0 ¦ sshpass -p¤ ssh admin@leaf0 ¦ curl -u admin:¤ https://bmc/redfish/v1
curl --user admin:¤ https://bmc/redfish/v1 ¦ mysql -uroot -p¤
https://acc.blob.core.windows.net/c?sv=2022&sig=¤%3D ¦ https://b.s3.amazonaws.com/k?X-Amz-Signature=¤
snmp-server community ¤ RO ¦ tacacs-server host 10.0.0.1 key 7 ¤ ¦ enable secret 5 ¤
username admin privilege 15 secret sha512 ¤ ¦ username admin password ¤
{"TACPLUS": {"global": {"passkey": "¤"}}} ¦ {"SNMP_COMMUNITY": {"¤": {"TYPE": "RO"}}}
neighbor 10.0.0.1 password 7 ¤ ¦ ansible_ssh_pass: ¤ ¦ ansible_become_pass=¤ ¦ {"ansible_become_pass": "¤"}
DB_PASS=¤ ¦ StoragePass=¤ ¦ AccountingStoragePass=¤
DefaultEndpointsProtocol=https;AccountName=a;AccountKey=¤==; ¦ {"auths":{"nvcr.io":{"auth":"¤"}}}
machine h login u password ¤ ¦ pass: ¤ ¦ pw=¤ ¦ PWD_ADMIN=¤ ¦ vault login -t ¤ ¦ password＝¤ ¦ bindpw ¤
psk="¤" ¦ <password>¤</password> ¦ ipmitool -I lanplus -U admin -P¤ sdr
ipmitool -H b -U a -P '¤ two ¤' sdr ¦ ["ipmitool", "-P", "¤", "sdr"] ¦ ['ipmitool', '-U', 'a', '-P', '¤']
ipmipower -h n1 -u admin -p ¤ --stat ¦ ipmi-sensors -u admin -p ¤ ¦ redfishtool -r bmc -u root -p ¤ Systems
racadm -r 10.0.0.1 -u root -p ¤ getsysinfo ¦ ilorest login 10.0.0.1 -u admin -p ¤
docker login -u x -p ¤ nvcr.io ¦ helm registry login -u x -p ¤ r
skopeo copy --src-creds u:¤ docker://a dir:b ¦ mysqldump -uroot -p'¤' db ¦ curl -uadmin:¤ https://x
curl -su admin:¤ https://x ¦ curl -k -u "admin:¤" https://x ¦ curl --user='admin:¤' https://x
curl --proxy-user a:¤ https://x ¦ ["curl","-u","admin:¤"] ¦ http -a admin:¤ GET x ¦ lftp -u admin,¤ sftp://x
ldapsearch -x -D cn=admin -w ¤ -b dc=x ¦ redis-cli -h x -a ¤ ping ¦ plink -ssh -pw ¤ admin@x
snmpwalk -v2c -c ¤ 10.0.0.1 ¦ snmpwalk -v3 -u u -A ¤ -X ¤ host ¦ smbclient //h/s -U admin%¤
openssl pkcs12 -in a -passin pass:¤ ¦ openssl enc -passout "pass:¤" ¦ echo 'root:¤' | chpasswd
echo ¤ | passwd --stdin root ¦ echo "¤" | docker login -u x --password-stdin ¦ echo ¤ | sudo -S ls
vault login ¤ ¦ wandb login ¤ ¦ kubectl create secret generic x --from-literal=pw=¤ ¦ htpasswd -bc f u ¤
mount -o username=u,pass=¤ //a b ¦ 7z a -p¤ x.7z y ¦ zip -P ¤ a.zip b ¦ keytool -storepass ¤ -keypass ¤
nmcli dev wifi connect x password ¤ ¦ sqlcmd -S h -U sa -P ¤ ¦ ssh-keygen -t rsa -N ¤ -f k
etcdctl --user root:¤ get x ¦ xfreerdp /u:a /p:¤ /v:h ¦ set snmp community ¤ authorization read-only
rocommunity ¤ 10.0.0.0/8 ¦ snmp-server host 10.0.0.1 version 2c ¤ ¦ snmp-server host 10.0.0.1 traps ¤
snmp-server user u g v3 auth sha ¤ priv aes 128 ¤ ¦ createUser u SHA "¤" AES "¤"
com2sec notConfigUser default ¤ ¦ nv set service snmp-server readonly-community ¤ access any
sudo config snmp community add ¤ RO ¦ snmp_rocommunity: ¤ ¦ "SNMP_COMMUNITY|¤" ¦ radius-server key ¤
radius-server host 1.1.1.1 auth-port 1812 key 0 ¤ ¦ radius-server host 1.1.1.1 key 7 "¤"
nv set system aaa tacacs server 1 secret ¤ ¦ config tacacs passkey ¤ ¦ server 10.0.0.1:49 secret ¤
10.0.0.1 secret ¤ ¦ enable password 7 ¤ ¦ enable secret ¤ ¦ enable secret level 15 5 ¤
username admin privilege 15 password 0 ¤ ¦ nv set system aaa user bob password ¤
username admin role network-admin secret sha512 $6$abcdefgh$QWERTYUIOPasdfghjklZXCVBNM¤
encrypted-password "$6$abc$DEFghi¤"; ## SECRET-DATA ¦ set protocols bgp group x authentication-key "$9$abc¤"
isis authentication key 7 ¤ ¦ ntp authentication-key 1 md5 ¤ 7 ¦ crypto isakmp key ¤ address 1.1.1.1
password ¤ ¦ ppp chap password 0 ¤ ¦ mpls ldp neighbor 1.1.1.1 password ¤
root:$6$saltsalt$hashHash¤:19000:0:99999 ¦ dbPass=¤ ¦ userPwd: ¤ ¦ rootpw ¤ ¦ olcRootPW: ¤ ¦ DB_PASSWORD_2=¤
password1: ¤ ¦ bmc_pw=¤ ¦ PrivateKey = ¤= ¦ SharedAccessSignature sr=x&sig=¤&se=1
Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey=¤= ¦ Driver=x;UID=sa;PWD=¤; ¦ :password => "¤"
if password == "¤": ¦ private key: ¤ ¦ ldap_default_authtok = ¤ ¦ user: bob pass: ¤ ¦ pass_admin: ¤
https://x/y?Expires=1&Signature=¤&Key-Pair-Id=x ¦ https://s/?X-Goog-Signature=¤ ¦ GET /cb?code=¤&state=1
https://u:p@¤@h/x ¦ https://chat.googleapis.com/v1/spaces/A/messages?key=¤&token=¤
https://discord.com/api/webhooks/123456789/¤¤
https://x.webhook.office.com/webhookb2/¤@a/IncomingWebhook/b/c
https://api.telegram.org/bot123456789:¤¤/sendMessage ¦ https://mm.example.org/hooks/¤
https://open.feishu.cn/open-apis/bot/v2/hook/¤ ¦ _auth=¤ ¦ machine h login u password "¤"
<ns:Password type="t">¤</ns:Password> ¦ <password><![CDATA[¤]]></password>
<add key="DbPassword" value="¤"/> ¦ <name>x.password</name><value>¤</value>
{"name": "DB_PASSWORD", "value": "¤"} ¦ ["--password", "¤"] ¦ ['tool','--api-key','¤'] ¦ password：¤
xapp-1-A0123456789-¤ ¦ glrt-¤¤ ¦ npm_¤¤¤ ¦ pypi-AgEIcHlwaS5vcmc¤¤¤ ¦ sk_live_¤¤ ¦ hvs.¤¤ ¦ SG.¤¤.¤¤
tskey-auth-¤ ¦ GOCSPX-¤¤ ¦ 123456789:AA¤¤Zq7 ¦ cred MUNGE:¤AAAA ¦ wpa-psk ¤ ¦ wpa-psk ascii 0 ¤
ansible -e '{"ansible_become_pass": "¤"}' ¦ <input type='password' value='¤'>
"""),
    "secrets:\n  - ¤",
    '{\n "password" :\n  "¤"\n}',
    "password=\\\n¤",
    '{"cmd": "ipmitool -P \\"¤\\" sdr"}',
    " SNMP Community String   : ¤",
    "SNMP_COMMUNITY:\n  ¤:\n    TYPE: RO",
    "tacacs server t1\n address ipv4 10.0.0.1\n key 7 ¤\n!",
    "line vty 0 4\n password 7 ¤\n login",
    '    secret "$9$¤"; ## SECRET-DATA',
    "  neighbor SPINES password 7 ¤",
    " ip ospf message-digest-key 1 md5 7 ¤",
    " ip ospf authentication-key ¤",
    " isis password ¤ level-2",
    " area-password ¤",
    "key chain k\n key 1\n  key-string 7 ¤",
    " vrrp 1 authentication text ¤",
    '{\n "auths": {\n  "nvcr.io": {\n   "auth":\n    "¤"\n  }\n }\n}',
    "machine h\n  login u\n  password ¤",
    "<password>\n  ¤\n</password>",
    "<property>\n <name>x.password</name>\n <value>¤</value>",
    "- name: DB_PASSWORD\n  value: ¤",
    '{\n "name": "DB_PASSWORD",\n "value": "¤"\n}',
    "password: |\n  ¤\nnext: 1",
    "token: >-\n  ¤\n  ¤\nnext: 1",
    "password:\n  ¤\n",
    'api_keys:\n- ¤\n- "¤"\n',
    "passwords:\n  - a: ¤",
    '{"token":\n"¤"}',
    "curl \\\n  --token \\\n  ¤",
    "password: \\\r\n  ¤",
    "Private-Lines: 2\nAAAA¤\nBBBB¤\nPrivate-MAC: x",
    "Private-Lines: 1\nAAAA\nPrivate-MAC: 0¤",
    "root@leaf0's password:\n¤",
    *split("""
{"private_key_id": "¤"} ¦ %any %any : PSK "¤"
storcli /c0 set securitykey=¤ ¦ https://conda.anaconda.org/t/xy-¤/channel ¦ https://x/?pass%77ord=¤&page=2
-Credential (ConvertTo-SecureString "¤" -AsPlainText) ¦ ConvertTo-SecureString -String ¤ -Force
mot de passe : ¤ ¦ パスワード：¤ ¦ Kennwort: ¤ ¦ {'password': b'¤'} ¦ keytab: BQIAAABHAAIAC1NJVEUuRVhBTVBMRQ¤
RWRTY0IyAAAAAAAAAAAA¤ ¦ TOTP secret ¤
"""),
)
KEPT = (
    *split("""
eos_token: 2 ¦ tokens_per_s: 390.1 ¦ seconds_per_token=0.02 ¦ pass 1 of 3 ¦ PASS ¦ PASS: gemm 512
PASS: not found ¦ [PASS] all ¦ pass: 12, fail: 0 ¦ passes: 3 ¦ first pass: warm-up
warmup pass: verify done ¦ "status": "Pass" ¦ {"PASS": "ok", "FAIL": "bad"} ¦ password: true
ib_write_bw -d mlx5_0 -p 18515 --report_gbits 10.0.0.2 ¦ ib_send_lat -u 14 -x 3 -F ¦ rsync -avP src/ dst/
rsync -a -P x y ¦ ssh -p 2222 admin@leaf0 ¦ scp -P 2222 a b ¦ nc -u 10.0.0.1 514
docker run -p 8080:80 -t image ¦ ssh -t host ls ¦ sort -u file ¦ python3 -u script.py ¦ mkdir -p /x/y
srun -p gpu -N 2 -u ./x ¦ sbatch -p gpu job.sh ¦ scontrol show job ¦ sinfo -p debug
mysql -u root -h host -P 3306 -p ¦ curl -sS -o /dev/null https://host/path ¦ curl --unix-socket /x http://h/
grep -P pattern file ¦ key 7 of 9 ¦ step key 7 done ¦ tunnel key 5
ip community-list standard X permit 65000:1 ¦ send-community extended ¦ route-map X permit 10
secret steps: 5 ¦ secret_steps=5 ¦ secret_scaling: 0.5 ¦ the secret is safe ¦ password authentication failed
user password required ¦ username and password must be set ¦ PasswordAuthentication yes ¦ token_count: 5
num_tokens: 5, tokens: 17 ¦ max_new_tokens=512 ¦ "tokens": ["a", "b"]
local address: LID 0000 QPN 0x0127 PSN 0x4a5b RKey 0x1820be VAddr 0x7f ¦ OLDPWD=/x ¦ pwd: /home/x
ntp server 10.0.0.1 key 1 ¦ ntp authentication-key 1 ¦ ntp trusted-key 1 ¦ [  PASSED  ] 3 tests
[       OK ] ( 1/10) nccl_all_reduce @site:gpu+default
[  PASSED  ] Ran 10/10 test case(s) from 10 check(s) (0 failure(s), 0 skipped, 0 aborted)
JobId=12 Partition=gpu Account=ops QOS=normal ¦ AuthType=auth/munge ¦ AuthInfo=/var/run/munge/munge.socket.2
CryptoType = crypto/munge ¦ "auth": "none" ¦ "auth": "kerberos" ¦ auth: munge
https://github.com/NVIDIA/nccl/blob/master/src/init.cc ¦ https://example.org/x?page=2&sort=asc
/repo/.git/hooks/pre-commit ¦ bypass: 1 ¦ bypass=enabled ¦ compass: north ¦ <status>pass</status>
<pass>12</pass> ¦ <testcase name="token" time="0.3"/> ¦ pw=12.5 ¦ ppw: 3 ¦ snmp-server location rack 4
snmp-server contact ops ¦ no snmp-server enable ¦ radius-server timeout 5 ¦ tacacs-server timeout 5
username admin ¦ ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFb alice@site
username admin ssh-key ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFb ¦ zip -r a.zip b ¦ 7z a x.7z y
sum 4194304 float -1 12.3 ¦ MUNGE: credential expired ¦ slurmstepd: error: munge: Unable to decode
enable_thinking: false ¦ hook: ncclNet ¦ npm_config_cache=/x ¦ sk-learn ¦ task-0 sk-1 ¦ glibc-2.31
step 5: login ok ¦ vault: ok ¦ redis-server -p 6379 ¦ ping -c 5 -i 0.2 host ¦ taskset -c 0-3 ./x
numactl -C 0 -m 0 ./x ¦ nsys profile -t cuda,nvtx -w true ./app
all_reduce_perf -b 8 -e 8G -f 2 -g 8 -c 1 -n 20 -w 5 ¦ fio --name=x --rw=read -a ¦ community: main
tee -a log | sudo tee x ¦ echo 3 | sudo tee /proc/sys/vm/drop_caches ¦ echo done | tee x
ldapsearch -x -H ldap://h -b dc=x ¦ the token ring ¦ cookies enabled ¦ licence keys: 3 ¦ keys: 3
P-Key index 0 ¦ Token bucket rate 5 ¦ - name: eos_token
"""),
    " set community 65000:100",
    "  neighbor 10.0.0.1 send-community both",
    " match community Y",
    " PWD=/home/user",
    "admin's password:\nLast login: Mon Nov 30",
    "Password:\nmlx5_0 0.21 Gb/s",
    "https://x/?filter%5Bname%5D=n1&page%20size=2",
    "d41d8cd98f00b204e9800998ecf8427e:sums:d41d8cd98f00b204e9800998ecf8427e",
    "TOTP is enabled",
)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_of_each_kind_is_removed(shape):
    """Catches: a password that stays in clear because of how a tool, a switch or a file writes it down."""
    text = shape.replace("¤", SECRET)
    for around in (text, f"PASS: before\n{text}\nafter 390.1\n"):
        clean = redact(around)
        assert SECRET not in clean and SECRET[3:] not in clean
        assert redact(clean) == clean
    assert clean.startswith("PASS: before\n") and clean.endswith("after 390.1\n")


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[0] in "{[" and "'" not in shape])
def test_json_stays_json(shape):
    """Catches: a value that goes together with the quote behind it."""
    assert json.loads(redact(shape.replace("¤", SECRET)))


@pytest.mark.parametrize("line", KEPT)
def test_what_only_looks_like_a_secret_stays(line):
    """Catches: a port, a count, a verdict or a sentence that goes as if it were a password."""
    assert redact(f"{line}\n") == f"{line}\n"


def test_hashes_of_a_windows_password_go():
    """Catches: what stands for a password wherever Windows asks for one."""
    hashes = "aad3b435b51404eeaad3b435b51404ee:8846f7eaee8fb117ad06bdd830b7586c"
    assert redact(f"Administrator:500:{hashes}:::\n") == "Administrator:500:REDACTED:::\n"


def test_no_line_makes_another_go():
    """Catches: what a line holds decides about the next, in one text with all of them."""
    text = "\n".join((*KEPT, ""))
    assert redact(text) == text and redact(f"token={SECRET}\n" * 99 + text) == "token=REDACTED\n" * 99 + text


@pytest.mark.parametrize("order", ["utf-16", "utf-16-le", "utf-16-be"])
def test_text_of_two_bytes_a_letter_is_read(order):
    """Catches: an output of a Windows tool whose every other byte hides what stands in it; letters lost."""
    text = "Grüße 漢字 390.1\r\npassword={}\r\n"
    clean = redact_bytes(text.format(SECRET).encode(order))
    assert clean == text.format("REDACTED").encode(order) and redact_bytes(clean) == clean


def test_an_environment_of_a_process_goes():
    """Catches: /proc/PID/environ, where a zero byte ends each variable."""
    assert SECRET not in redact(f"PATH=/bin\0X={SECRET}\0HOME=/root\0")


@cases(
    "piece",
    *("sshpass -p ", "ipmitool -P", "curl -u ", "mysql ", "snmp ", "snmp host x ", "tacacs\n ", "secret "),
    *("<password>\n", "<token ", "user=", "user=a pass", "?sig=", "://a/hook/", '"auth":', "id=token\n"),
    *("token:\n- x\n", "token \n", "token\\\n", "token: |\n x\n", "$ANSIBLE_VAULT;", "a\0", "A=\0", "PWD_a_"),
    *(
        "echo x | ",
        "password ;",
        "key 7 ",
        "MUNGE:",
        "Private-Lines: 1\n",
        "?%41",
        "password:\n1a",
        "token    ",
        '"--token",',
        "$6$",
    ),
)
def test_each_kind_takes_linear_time(piece):
    """Catches: an expression that looks at the rest of a line, or of a file, from each place in it."""
    took = []
    for times in (1, 4):
        text = "sshpass snmp token echo hook auth pass_ pwd_ password " + piece * (
            times * 60_000 // len(piece)
        )
        started = time.process_time()
        redact(text)
        took.append(time.process_time() - started)
    assert took[1] < 12 * took[0] + 0.2
