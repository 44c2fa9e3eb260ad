"""What secrets look like, and what must stand in a line before it is looked at.

A new kind of secret is a word that names end in, a prefix in `KNOWN`, or a row in `RULES`. Expressions take
linear time: what repeats is possessive or bounded, and none looks again at what another place has looked at.
"""

import re
from typing import NamedTuple

# A plain word: assigned to a secret's name it is redacted into itself, so that redacting twice is harmless.
MASK = "REDACTED"

# What the name of a secret ends in: HF_TOKEN, aws_secret_access_key, db-password, StoragePass, bindpw.
# Looked for where a name ends and nowhere else in it: within long words that costs a try for each letter.
_OWNERS = (
    *("admin", "become", "bind", "bmc", "db", "ipmi", "key", "ldap", "login", "mysql", "root", "smtp", "ssh"),
    *("storage", "store", "sudo", "user"),
)
_PASSWORDS = (
    *("passwd", "password", "passwort", "passphrase", "passkey", "secret", "_pwd", "-pwd"),
    *(f"{owner}{glue}pass" for owner in _OWNERS for glue in ("", "[_-]")),
    *(f"{owner}{short}" for owner in _OWNERS for short in ("pw", "pwd")),
)
_KEYS = (
    *("access", "account", "api", "encryption", "license", "master", "preshared", "private", "secret"),
    *("security", "shared", "signing", "storage"),
)
_KEY_NAMES = ("_key", "-key", *(f"{kind}{glue}key" for kind in _KEYS for glue in ("", " ")))
_PLURALS = (
    *("api_keys", "private_key_id", "snmp_communities"),
    *(f"{kind}_tokens" for kind in ("access", "api", "auth", "refresh")),
)
_OTHERS = (
    *("token", "token[0-9]", "authtok", *_KEY_NAMES, *_PLURALS, "credential", "credentials", "secrets"),
    *("passwords", "authorization", "cookie", "cookies", "[_.-]pass", "(?-i:[a-z]P)ass", "(?-i:[a-z]P)wd"),
    *("(?-i:[a-z]P[Ww])", "(?<![a-z0-9])pw", "(?<![a-z0-9])psk", "[or][ow]community", "snmp[_-]community"),
    *("community string", "trap[_-]community", "[_-]cak", "client-key-data"),
    # In a name of its own: `PASS: gemm` and `warm-up pass: 3 s` are none.
    r"(?<![a-z0-9)\]] )(?<![a-z0-9_.-])(?-i:[Pp]ass)",
)
# A name of its own as well, if no folder follows.
_OF_A_FOLDER = r"""(?<=(?<![a-z0-9_.-])pwd)(?!\\{0,8}["']?[ \t]*[:=][ \t]*\\{0,8}["']?(?:[/~$.]|[a-z]:))"""


def _ending_in(words: tuple[str, ...], *codes: str) -> str:
    """Return an expression that holds behind one of the words; their last two letters are looked at first."""
    by_end: dict[str, list[str]] = {}
    for word in words:
        for code in ("", "_b64", *codes):
            end = code or word[-2:]
            by_end.setdefault(end if end.isalnum() or code else "", []).append(f"(?<={word}{code})")
    return "|".join(f"(?<={end})(?:{'|'.join(found)})" for end, found in by_end.items())


NAME = (
    rf"[A-Za-z0-9_.-]++(?:(?P<password>{_ending_in(_PASSWORDS, '[0-9]', '_[0-9]')})"
    rf"|{_ending_in(_OTHERS)}|{_OF_A_FOLDER})"
)
_START = r"(?<![A-Za-z0-9_.-])"
# Where a value begins: with a quote, escaped ones as in JSON within a string; or as a word, of which what
# closes a list is no part. Whole words are taken at once (`++`), or a long one costs a state for each letter.
QUOTE = re.compile(r"""\\{0,8}["']""")
_QUOTED = r"""(?=\\{0,8}["'])"""
_LETTER = r"""(?:[^\s"'\\,;}\]]|\\(?!["']))"""
WORD = re.compile(r"""(?:[^\s"'\\]++|\\(?!["']))++""")
_A_WORD = rf"(?=[,;}}\]]*+{_LETTER})"
SCHEME = re.compile(rf"(?:Bearer|Basic|Digest|Negotiate)[ \t]+{_A_WORD}", re.IGNORECASE)
# `password: correct horse battery`, as in YAML, logs and HTTP headers: to the end of the line.
LINE = re.compile(rf"""(?<!["'\\]){_START}{NAME}[ \t]*:[ \t]+(?!\\{{0,8}}["'])(?=\S)""", re.IGNORECASE)
# name=value, name:value, "name": "value"; quotes may be escaped, as in JSON within a string.
ASSIGNMENT = re.compile(
    rf"""(?:(?P<key>\\{{0,8}}["'])|{_START}){NAME}(?(key)(?P=key))[ \t]*(?:[:=]{{1,3}}+>?|[＝：])[ \t]*"""
    rf"""(?:{_QUOTED}|{_A_WORD})""",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"(?<!\S)--?(?!(?:key|pwd)(?:_b64)?[ \t]){NAME}[ \t]+(?:{_QUOTED}|(?!-){_A_WORD})", re.IGNORECASE
)
# Counts (`"eos_token": 2`, `seconds_per_token=0.02`) and settings are no secrets, unless as a password.
_WORDS_OF_SETTINGS = r"(?:true|false|null|none|yes|no)"
CONSTANT = re.compile(rf"{_WORDS_OF_SETTINGS}[,;}}\]]*", re.IGNORECASE)
HARMLESS = re.compile(rf"(?:{_WORDS_OF_SETTINGS}|[-+]?[0-9.]+(?:e[-+]?[0-9]+)?)[,;}}\]]*", re.IGNORECASE)
# What of them there is to look for in lines that hold such a name, and what they need beside it.
NAMED = ((LINE, (": ", ":\t")), (ASSIGNMENT, ("=", ":", "＝", "：")), (_OPTION, ("-",)))

# A value below its name, as pretty JSON, YAML and a shell's `\` break lines.
_BREAK = r"[ \t]*+\r?\n[ \t]*+"
_ITEM = rf"""{_BREAK}-[ \t]+(?!(?:name|source|target):)[^\s\[{{][^\n]*+"""
_UP_TO_QUOTE = r"""(?:[^\n\\"']++|(?!(?P=q))(?:\\.|["']))++"""
BELOW = re.compile(
    rf"""(?P<head>(?:(?P<key>\\{{0,8}}["'])|{_START}){NAME}(?(key)(?P=key)))(?:"""
    rf"""(?P<joint>[ \t]*+[:=]?[ \t]*+\\{_BREAK}|(?:{_BREAK})?[ \t]*+:(?:{_BREAK}|[ \t]*+)(?=["']))"""
    rf"""(?P<q>["'])?(?P<value>(?(q){_UP_TO_QUOTE}|[^\s"'\\]++))(?P<end>(?(q)(?P=q))(?![ \t]*:))"""
    r"""|(?P<block>:[ \t]*(?:![\w-]+[ \t]*)?[|>][+-]?[ \t]*\r?\n(?P<by>[ \t]++))[^\n]*+"""
    r"""(?:\n(?P=by)[^\n]*+)*+"""
    rf"""|(?P<plain>:{_BREAK}(?<=[ \t]))[^\s"'\[{{:-][^\s:]*+(?=\r?(?:\n|\Z))"""
    rf"""|(?P<items>:(?:{_ITEM})++))""",
    re.IGNORECASE,
)
BROKEN = re.compile(r"""[:=\\|>+"'-][ \t]*\r?\n""")

# What goes as a whole, whatever lines it has: a mark of it, what goes, and what stays in its place.
WHOLES = (
    (
        "PRIVATE KEY",
        re.compile(
            r"----[- ]BEGIN ([A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)[ -]----.*?(?:----[- ]END \1[ -]----|\Z)",
            re.DOTALL,
        ),
        MASK,
    ),
    (
        "$ANSIBLE_VAULT",
        re.compile(r"\$ANSIBLE_VAULT;[^\s\\]*+(?:(?:\s|\\[rn])++[0-9a-f]{2,}+(?![^\s\\\"']))*+"),
        MASK,
    ),
    (
        "Private-Lines",
        re.compile(r"(Private-Lines: [0-9]+)(?:\r?\n[\w+/=]++(?=\s|\Z))++(?:\r?\nPrivate-MAC: \w++)?+"),
        rf"\1 {MASK}",
    ),
    (
        "\0",  # /proc/PID/environ
        re.compile(
            # Begins with a letter, which is found far sooner than a place with nothing before it.
            r"[A-Za-z_](?<![^\0\n].)[A-Za-z0-9_]*+=[^\0\n]*+\0(?:[A-Za-z_][A-Za-z0-9_]*+=[^\0\n]*+\0){2,}+"
            r"(?:[A-Za-z_][A-Za-z0-9_]*+=[^\0\n]*+)?"
        ),
        f"environment {MASK}",
    ),
    ("environ({", re.compile(r"\benviron\(\{.*?(?:\}\)|\Z)", re.DOTALL), f"environ({MASK})"),
)
HEADER = re.compile(r"\b(Bearer|Basic|Digest|Negotiate)([ \t]+)[A-Za-z0-9+/_.~=-]{8,}", re.IGNORECASE)
URL = re.compile(r"\b([a-z][a-z0-9+.-]{1,16}://)[^\s/\"'<>]{1,512}@", re.IGNORECASE)
# Tokens that name themselves by their prefix.
KNOWN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|hf_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|gl(?:pat|dt|rt|ptt|soat|cbt|ft|imt)-[A-Za-z0-9_-]{16,}|gl(?:sa|c)_[A-Za-z0-9_+/=]{20,}"
    r"|sk-[A-Za-z0-9_-]{20,}|xox[abceprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|x(?:app|wfp)-[A-Za-z0-9-]{16,}"
    r"|A(?:KIA|SIA|BIA)[0-9A-Z]{16}|dckr_[po]at_[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{16,}"
    r"|AIza[A-Za-z0-9_-]{30,}|GOCSPX-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{32,}"
    r"|[srp]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{16,}|hv[sbr]\.[A-Za-z0-9_-]{20,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|tskey-[A-Za-z0-9-]{12,}|do[oprt]_v1_[a-f0-9]{32,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|(?:BQIAAA|RWRTY0Iy)[A-Za-z0-9+/=]{16,}"
    r"|AT(?:ATT|CTT)[A-Za-z0-9_=-]{20,}|shp(?:at|ss|ca|pa)_[A-Fa-f0-9]{20,}|rubygems_[a-f0-9]{20,}"
    r"|sntry[su]_[A-Za-z0-9_+/=-]{20,}|lin_api_[A-Za-z0-9]{20,}|pul-[a-f0-9]{32,}|key-[a-f0-9]{32}"
    r"|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{32,}|[0-9]{8,10}:AA[A-Za-z0-9_-]{32,}"
    r"|(?:figd|sbp|pscale_tkn|nfp|ntn|tfp|wandb_v1|PMAK|NRAK)[_-][A-Za-z0-9_-]{24,})"
)

# Words of the letters of a JSON web token, and where one begins in them.
DOTTED = re.compile(r"[A-Za-z0-9_.-]{16,}")
LEAST_OF_A_PART = 8
HEAD = re.compile(r"\beyJ(?=[A-Za-z0-9_-]{8})")

# What a JSON key like "env" or "credentials" holds, if it is an array or an object, goes as a whole.
STRUCTURE_KEY = re.compile(
    rf'"(?:env|environ|environment|snmp_community|{NAME})"\s*:\s*(?=[\[{{])', re.IGNORECASE
)
# A dump by env(1), printenv or export -p: four or more assignments, one a line, among them a usual one.
_DUMP_LINE = r"(?:declare -x |export )?[A-Za-z_][A-Za-z0-9_]*+=[^\n]*+"
DUMP = re.compile(rf"(?:^{_DUMP_LINE}(?:\n|\Z)){{4,}}+", re.MULTILINE)
# Looked for behind a line's end, which is found far sooner than what `^` stands for.
DUMP_MARK = re.compile(r"\n(?:declare -x |export )?(?:PATH|HOME|PWD|SHELL|USER|LANG|TERM)=")


class Word(NamedTuple):
    """What must stand in a line."""

    letters: bytes  # that it begins with, as far as they are fixed, without `FILLERS`
    expression: re.Pattern[str]


# Lines that differ in these alone are looked at once: in numbers, most of the letters of addresses, and what
# is no text.
FILLERS = b"0123456789bcdf \t" + bytes((*range(9), *range(11, 32), *range(127, 256)))
SEPARATED = bytes.maketrans(b",\"'{}[]()|+*", b"\n" * 12)  # in no word's fixed letters
_spaced = str.split
_WITHOUT_FILLERS = str.maketrans("", "", FILLERS.decode("latin-1"))


def _each(*words: str) -> tuple[Word, ...]:
    fixed = (re.match(r"(?:\\[$.?]|[a-z0-9_:/=&;< -](?![?*{]))*", word) for word in words)
    heads = [
        (head[0] if head else "").replace("\\", "").translate(_WITHOUT_FILLERS).encode() for head in fixed
    ]
    return tuple(Word(head, re.compile(word)) for head, word in zip(heads, words, strict=True))


# What must stand in a line, in lower case, before one of the slower expressions above can match in it. One by
# one, because what begins with fixed letters is found as quickly as memory is read, and alternatives are not.
OF_A_NAME = _each(
    *(
        rf"{word}(?:_b64|_?[0-9])?(?![a-z0-9_.-])"  # a name ends with it: `tokens_per_s` is none
        for word in (
            *("passwords?", "pass(?:wd|wort|phrase|key)", "pwd", "pw", "psk", "secrets?", "token", "authtok"),
            *(*_KEY_NAMES, *_PLURALS, "credentials?", "authorization", "cookies?", "community(?: string)?"),
            *("_cak", "-cak", "key-data"),
        )
    ),
    # Not where it is a verdict, as every line of a log may have one.
    r"pass(?:_b64|_?[0-9])?(?=[\\\"']*[ \t]*[:=：＝,>\\])",
    r"pass(?<=[a-z_-]pass)(?:_b64|_?[0-9])?[ \t]",
)
_OF_A_HEADER = _each("bearer", "basic", "digest", "negotiate")
_TOKENS = r"""
    ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- glrt- glptt- glsoat- glcbt- glft- glimt- glsa_ glc_
    hf_ nvapi- sk- xox akia asia abia dckr_ aiza gocspx- npm_ pypi- xapp- xwfp- k_live_ k_test_ ya29\.
    hvs\. hvb\. hvr\. sg\. \.atlasv1 whsec_ tskey- doo_v1_ dop_v1_ dor_v1_ dot_v1_ age-secret- gsk_ atatt
    atctt shpat_ shpss_ shpca_ shppa_ xai- bqiaaa rwrty0iy sntry rubygems_ lin_api_ pul- figd_ sbp_
    pscale_tkn nfp_ ntn_ tfp_ wandb_v1 pmak- nrak- key-[a-f0-9]{32} :aa[a-z0-9_-]{32}"""
_OF_A_TOKEN = _each(*_spaced(_TOKENS))
_OF_A_URL, OF_A_WEB_TOKEN = _each("://"), _each("eyj")


# A value in quotes, escaped ones as in JSON within a string, or a word; not what prose goes on with.
_PROSE = (
    r"(?!(?:is|are|was|were|be|has|had|have|not|no|for|and|or|the|a|an|to|in|of|on|at|by|from|with|as|if|it|must"
    r"|may|can|cannot|will|would|should|required|needed|unset|set|list|none|file|authentication|login|prompt"
    r"|change[ds]?|expired?|expires|failed|failure|error|incorrect|invalid|missing|mismatch|accepted|rejected"
    r"|policy|steps?|times|attempts|characters|length|hash|encryption|protection|manager|aging|reset|updated"
    r"|exchange|types?|store)(?![^\s,.;:!?)]))"
)
_LETTERS = r"""(?:[^\s"'\\<]++|\\(?!["'nrt]))++"""


def _then(head: str, least: int = 1) -> re.Pattern[str]:
    """Return an expression for `head`, its group 1, and the value behind it."""
    return re.compile(
        rf"""({head}\$?(?P<q>\\{{0,8}}["'])?)(?(q){_UP_TO_QUOTE}|(?=[^\s"']{{{least}}}){_LETTERS})""",
        re.IGNORECASE,
    )


def _tools(names: str) -> re.Pattern[str]:
    """Return an expression for a call of one of the tools, up to what ends a command."""
    return re.compile(
        rf"(?<![\w.-])(?:{names})(?:\.exe)?(?=[\s\"'\\])(?:[^\n|;&]++|[|;&](?![ \t|&]))*+", re.IGNORECASE
    )


def _flag(letters: str, glued: bool = True) -> re.Pattern[str]:
    between = r"""(?:\\{0,8}["'],[ \t]*(?=\\{0,8}["'])|[ \t]"""
    return _then(rf"""(?<![^\s"'])(?-i:{letters}){between}{"*" if glued else "+"})(?!-)""")


_TYPES = (
    r"(?:(?:[0-9]{1,3}[a-z]?|sha-?[0-9]{1,3}|(?:aes|cmac|hmac)-?[\w-]*|md5|scrypt|hash(?:ed)?|encrypted|hidden"
    r"|(?:clear|plain)(?:-?text)?|ascii(?:-text)?|hex(?:adecimal)?|text|add|string|level)[ \t]+)*+"
)
_TYPED = rf"[ \t]++{_TYPES}"


def _lines_with(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{words})[^\n]*+", re.IGNORECASE)


_LETTER_CODE = "%(?:[46][1-9a-f]|[57][0-9a])"  # in an address only who hides a name writes one
_ABROAD = _spaced("パスワード 密码 비밀번호 пароль contraseña mot.?de.?passe kennwort wachtwoord")
# Words of which one must stand in the line; and what goes, but for its group 1, or where to look for what.
_Rule = tuple[tuple[Word, ...], re.Pattern[str]] | tuple[tuple[Word, ...], re.Pattern[str], re.Pattern[str]]
RULES: tuple[_Rule, ...] = (
    (_each("munge:"), re.compile(r"(\bMUNGE:)[A-Za-z0-9+/=]{8,}:?")),
    # Command lines: `-P` of rsync and ssh, `-p` of perftest and `-u` of most tools are none.
    (
        _each("ipmitool", "zip -", "ssh-keygen", "sqlcmd"),
        _tools("ipmitool|zip|unzip|ssh-keygen|sqlcmd"),
        _flag("-P"),
    ),
    (_each("ipmitool"), _tools("ipmitool"), _flag("-[ky]", glued=False)),
    (_each("ssh-keygen"), _tools("ssh-keygen"), _flag("-N")),
    (
        _each(
            *("sshpass", "ipmi", "redfishtool", "racadm", "ilorest"),
            *(f"{tool} -{flag}" for tool in ("sum", "saa") for flag in "uip"),
            *(f"{tool} {verb} -" for tool in ("7z", "7za", "rar") for verb in "ax"),
        ),
        _tools("sshpass|ipmi-?(?!tool|cfg)[a-z-]+|redfishtool|racadm|ilorest|sum|saa|7z[ar]?|rar"),
        _flag("-p"),
    ),
    (
        _each("login"),
        re.compile(
            r"\b(?:docker|podman|nerdctl|helm|skopeo|buildah|crane|oras|regctl|az|oc|argocd)[ \t]+"
            r"(?:[a-z]+[ \t]+)?login\b[^\n|;&]*"
        ),
        _flag("-p", glued=False),
    ),
    (_each("mysql", "mariadb"), _tools("(?:mysql|mariadb)[a-z-]*"), _then(r"""(?<![^\s"'])(?-i:-p)(?=\S)""")),
    (
        _each("mongo", "twine", "rabbitmqadmin"),
        _tools("mongo[a-z]*|twine|rabbitmqadmin"),
        _flag("-p", glued=False),
    ),
    (
        _each("curl", "etcdctl", "lftp", "wget", "http -", "https -"),
        _tools("curl|etcdctl|lftp|wget|https?"),
        _then(
            r"""(?:(?<![^\s"'])(?-i:-[a-zA-Z]*[uUaE])|--(?:proxy-)?(?:user|auth|creds|cert))"""
            r"""(?:\\{0,8}["'],[ \t]*|[ \t=]*)\\{0,8}["']?[^\s"':,]{0,64}[:,](?=[^\s"'/])"""
        ),
    ),
    (
        _each("--creds", "--src-creds", "--dest-creds"),
        _then(r"--(?:src-|dest-)?creds[ \t=]+[^\s:\"']{1,64}:"),
    ),
    (_each("ldap"), _tools("ldap[a-z]+"), _flag("-w")),
    (_each("redis-"), _tools("redis-[a-z]+"), _flag("-a", glued=False)),
    (_each("plink", "pscp", "psftp"), _tools("plink|pscp|psftp"), _flag("-pw", glued=False)),
    (
        _each("vault", "influx", "k3s server", "k3s agent"),
        _tools("vault|influx|k3s"),
        _flag("-t", glued=False),
    ),
    (_each("vault"), _then(r"\bvault[ \t]+login[ \t]+(?!-)(?![a-z]+=)")),
    (_each("wandb", "snyk"), _then(r"\b(?:wandb[ \t]+login|snyk[ \t]+auth)[ \t]+(?!-)")),
    (
        _each("smbclient", "rpcclient", "net ads", "net rpc"),
        _then(r"(?<!\S)(?:-U|--user)[ \t=]*[^\s%]{1,64}%"),
    ),
    (_each("freerdp"), _tools("[wx]freerdp3?"), _then(r"(?<!\S)/p:")),
    (_each(": psk"), _then(r":[ \t]+PSK[ \t]+")),
    (_each("totp", "hotp"), _then(r"\b[th]otp[ \t]+(?:secret|key|seed)[ \t:=]+")),
    (_each("-securestring"), _then(r"-SecureString[ \t]+(?:-String[ \t]+)?(?!-)")),
    (_each(":::"), re.compile(r"(:)[0-9a-f]{32}:[0-9a-f]{32}(?=:)", re.IGNORECASE)),
    (_each(_LETTER_CODE), _then(rf"[?&;](?=[\w.-]{{0,64}}{_LETTER_CODE})[\w.%-]{{1,64}}=")),
    (_each(*_ABROAD), _then(rf"(?:{'|'.join(_ABROAD)})[ \t]*[:=：＝][ \t]*")),
    (_each("password:"), re.compile(r"(?i)(password:\s*\n)(?=\S*[0-9])(?=\S*[a-z])\S{8,}+(?![ \t]+\S)")),
    (_each("-passin", "-passout"), _then(r"-pass(?:in|out)[ \t]+pass:")),
    (_each("usermod", "useradd"), _tools("usermod|useradd"), _flag("-p", glued=False)),
    (_each("wpa_passphrase"), _then(r"\bwpa_passphrase[ \t]+(?:\"[^\"\n]*\"|\S+)[ \t]+")),
    (
        _each("htpasswd"),
        _then(r"\bhtpasswd[ \t]+-[a-zA-Z]*b[a-zA-Z]*[ \t]+(?:-\S+[ \t]+)*\S+[ \t]+\S+[ \t]+"),
    ),
    (_each("radtest"), _then(r"\bradtest[ \t]+(?:-\S+[ \t]+\S+[ \t]+)*\S+[ \t]+")),
    (_each("--oauth2-bearer"), _then(r"--oauth2-bearer[ \t=]+")),
    (_each("sqlplus"), _then(r"\bsqlplus[ \t]+(?:-\S+[ \t]+)*[^\s/]{1,64}/")),
    (_each("mc alias"), _then(r"\bmc[ \t]+alias[ \t]+set[ \t]+(?:\S+[ \t]+){3}")),
    (_each("<<<"), _then(r"(?:kinit|passwd|-stdin)[^\n<]{0,200}<<<[ \t]*")),
    (_each(":5432:"), _then(r"(?<!\S)[\w.*-]+:5432:[^\s:]+:[^\s:]+:")),
    (_each("--from-literal"), _then(r"--from-literal[ \t=]+[^\s=]+=")),
    (
        _each("chpasswd", "-stdin", "sudo", "kinit"),
        re.compile(
            r"\b(?:echo|printf)[ \t][^\n|]{1,256}\|[ \t]*(?:sudo[ \t]+)?"
            r"(?:chpasswd|sudo[ \t]+-S|kinit|[^\n|]{1,256}-stdin)"
        ),
        _then(r"\b(?:echo|printf)[ \t]+(?:-[a-z]+[ \t]+)*(?:\\?[\"']?[\w-]+:)?"),
    ),
    # Switches: `key 7 x` belongs to a server, a peer or a protocol, `community` to SNMP alone.
    (
        _each(
            "tacacs", "radius", "isakmp", "ntp", "ospf", "isis", "is-is", "bgp", "server-private", "macsec"
        ),
        re.compile(
            r"(?<![\w-])(?:(?:tacacs|radius)[^\n]*+(?:\n[ \t]+[^\n]*+)*+"
            r"|(?:crypto|ntp|ip(?:v6)?|ospf|isis|is-is|bgp|server-private|macsec)[^\n]*+)",
            re.IGNORECASE,
        ),
        _then(rf"(?<![\w-])(?:(?:server-)?key|(?:shared-)?secret|passkey|password){_TYPED}{_PROSE}", 3),
    ),
    (
        _each("passw(?:or)?d[ \t]", "secret[ \t]", "passkey[ \t]"),
        _lines_with(
            "enable|username|user|account|neighbor|peer|group|ppp|ldp|ospf|isis|bgp|rip|eigrp|vrrp|standby|machine"
            "|login|nv[ \t]set|set|config|area|router|ip|aaa|cluster|nmcli|default|server"
            "|(?:[0-9]{1,3}[.]){3}[0-9]{1,3}"
        ),
        _then(rf"(?<![\w-])(?:passw(?:or)?d|secret|passkey){_TYPED}{_PROSE}"),
    ),
    # A line of its own, or with the type of what follows; a word like any other may be prose.
    (
        _each("passw(?:or)?d[ \t]", "secret[ \t]", "passkey[ \t]", "psk[ \t]"),
        _then(
            rf"(?:(?<![^\n])[ \t]*(?:password|passwd|secret|passkey|(?:wpa-)?psk){_TYPED}"
            r"(?=\S++[ \t;]*+(?![^\r\n]))"
            rf"|\b(?:password|secret)[ \t]+(?:[0-9]|sha512|encrypted|hashed)[ \t]+)"
            rf"{_PROSE}(?!(?-i:[a-z]+|[0-9]+)[.,;:]?(?!\S))"
        ),
    ),
    (
        _each("-key[ \t]", "key-string[ \t]", "-password[ \t]", "-secret[ \t]", "bindpw[ \t]", "rootpw[ \t]"),
        _then(
            r"(?<![^\s\"'])(?:(?:message-digest|authentication|pre-shared)-key|key-string"
            r"|(?:area|domain|hashed|encrypted|plain-text|authentication)-password|shared-secret|(?:bind|root)pw)"
            rf"{_TYPED}{_PROSE}",
            3,
        ),
    ),
    (
        _each("authentication"),
        _then(
            r"\b(?:vrrp|standby|hsrp)[ \t][^\n]{0,64}?authentication(?:[ \t]+md5[ \t]+key-string)?"
            rf"{_TYPED}{_PROSE}"
        ),
    ),
    (
        _each("snmp"),
        _lines_with("snmp[a-z]*|set snmp"),
        _then(
            r"(?:\bcommunity(?:[ \t]+(?:string\b[ \t:]*)?+|\|)|(?<!\S)(?-i:-c|-[AX])[ \t]+|\bpriv[ \t]+(?=0x)"
            r"|\b(?:auth|priv)[ \t]+(?:md5|sha|3?des|aes)[\w-]*[ \t]+"
            r"|\bhost[ \t]+\S+[ \t]+(?:(?:traps?|informs?|(?:use-)?vrf[ \t]+\S+|udp-port[ \t]+\S+)[ \t]+)*+"
            r"(?:(?:version[ \t]+)?[12]c?[ \t]+)?+(?!version|(?:use-)?vrf|udp-port|source|filter))"
            rf"{_TYPES}{_PROSE}"
        ),
    ),
    (_each("snmp_community"), _then(r"\bSNMP_COMMUNITY(?:\||:[ \t]*\r?\n[ \t]+(?=[^\s:]+:))")),
    (
        _each("rocommunity", "rwcommunity", "-community"),
        _then(rf"\b(?:r[ow]community6?|(?:readonly|readwrite|trap)-community)[ \t]+{_PROSE}"),
    ),
    (_each("com2sec"), _then(r"\bcom2sec6?[ \t]+(?:-Cn[ \t]+\S+[ \t]+)?\S+[ \t]+\S+[ \t]+")),
    (_each("createuser"), _lines_with("createuser"), _then(r"\b(?:md5|sha|des|aes)[\w-]*[ \t]+")),
    # Hashes of passwords, as in /etc/shadow and on switches.
    (
        _each(r"\$[1-9][0-9aby]?\$", r"\$y\$", r"\$argon2", r"\$apr1\$"),
        re.compile(r"(\$(?:[1-9][0-9aby]?|y|apr1|argon2id?)\$)[./A-Za-z0-9$=,+-]{8,}"),
    ),
    # URLs.
    (
        _each(
            *(rf"{m}{n}=" for n in _spaced("key code pass pw auth sas jwt sid") for m in (r"\?", "&", ";")),
            *_spaced("sig= signature= hmac= token= secret= passw(?:or)?d= pwd= apikey= api_key= api-key="),
            *("-credential=", "samlresponse=", "sessionid="),
        ),
        re.compile(
            r"([?&;](?:[a-z0-9_.-]*(?:sig|signature|token|secret|passw(?:or)?d|pwd|api[_-]?key|hmac)"
            r"|x-(?:amz|goog)-credential|key|code|pass|pw|auth|sas|jwt|samlresponse|sessionid|sid)=)"
            r"[^\s&\"'<>#;\\]+",
            re.IGNORECASE,
        ),
    ),
    (
        _each("hook", "telegram", "ifttt", "pagerduty", "hc-ping", "anaconda"),
        re.compile(
            r"(hooks\.slack\.com/[a-z]+/|api\.telegram\.org/bot|maker\.ifttt\.com/[^\s\"'<>]{1,200}?/key/"
            r"|events\.pagerduty\.com/integration/|hc-ping\.com/|anaconda\.[a-z]{3,5}/t/"
            r"|://[^\s\"'<>/]{1,200}/(?:[a-z0-9_.-]{1,40}/){0,6}?(?:[a-z0-9]{0,20}webhooks?[a-z0-9]{0,9}|hooks?)/)"
            r"(?=[^\s\"'<>]{12})[^\s\"'<>\\]+",
            re.IGNORECASE,
        ),
    ),
    # Registries: `"auth": "dXNlcjpw"`, `_auth=dXNlcjpw`.
    (
        _each("auth"),
        re.compile(
            r"""((?:(?<![\w.-])\\{0,8}"auth\\{0,8}"\s*:\s*\\{0,8}"|\b_auth[ \t]*=[ \t]*"?))"""
            r"""(?=[a-z0-9+/_-]*(?-i:[A-Z0-9=]))[a-z0-9+/_-]{12,}=*""",
            re.IGNORECASE,
        ),
    ),
    # `PWD_ADMIN=x`; and `user=x pass=y`, where `pass` is a name.
    (
        _each("pwd_", "passw(?:or)?d_", "secret_", "pass_"),
        _then(
            r"(?<![a-z0-9.-])(?:pwd|passw(?:or)?d|secret|pass(?=_(?:admin|root|user|db|ssh|bmc)))_"
            r"(?!(?:file|path|dir|type|policy|steps?|min|max|len|length|name|id|count|age|rate|prompt|command|version)"
            r"""(?![a-z]))[a-z0-9_]{1,40}["']?[ \t]*[:=][ \t]*"""
            r"""(?!["']?(?:[-+.0-9e]+|true|false|null|none|yes|no)["']?[,;}\]]?(?!\S))"""
        ),
    ),
    (
        _each("pass[ \t]*[:=]"),
        _then(r"\b(?:user|username|login|uid)[ \t]*[:=][ \t]*[^\s,;&]{1,128}[ \t,;]++pass[ \t]*[:=][ \t]*"),
    ),
)
# What else there is beside names, and one of what it needs in lower case: `"--password", "x"`, XML's elements
# and attributes, and pairs of a name and a value in XML, JSON and YAML.
PAIRED = (
    (_then(rf"\bconfig(?:ure)?[ \t]+(?:set[ \t]+|--?\w+[ \t]+){{0,4}}{NAME}[ \t]+(?![-=:])"), ("config",)),
    (_then(rf"""{_START}{NAME}\\{{0,8}}["']?[ \t]*[:=][ \t]*b(?=\\{{0,8}}["'])"""), ("b'", 'b"')),
    (_then(rf"""\\{{0,8}}["']--?{NAME}\\{{0,8}}["'],[ \t]*(?=\\{{0,8}}["'])"""), ("'-", '"-')),
    (
        re.compile(
            rf"(<(?:[a-z0-9_-]+:)?{NAME}(?:[ \t][^<>\n]{{0,200}})?(?<!/)>\s*+(?:<!\[CDATA\[)?)"
            r"(?!(?:true|false|null|none|yes|no)?\s*<)(?(password)|(?![-+.0-9e]++\s*<))"
            r"[^<>\s](?:[^<>\n]*[^<>\s])?",
            re.IGNORECASE,
        ),
        ("<",),
    ),
    (
        _then(
            r"""(?<![\w.-])(?:["']?(?:name|key|id|type)\\{0,8}["']?[ \t]*[:=][ \t]*(?P<n>\\{0,8}["'])?"""
            rf"""|(?:name|key)>[ \t]*){NAME}(?(n)(?P=n))[ \t]*+(?:,?\s*+|/?>\s*+<|</(?:name|key)>\s*+<)"""
            r"""["'\\]{0,9}(?:value|val|string)["'\\]{0,9}[ \t]*[:=>][ \t]*"""
        ),
        ("val", "string"),
    ),
    (_then(rf"<(?:[a-z0-9_-]+:)?{NAME}[ \t]+(?:[^<>\n]{{0,200}}?[ \t])?value[ \t]*=[ \t]*"), ("<",)),
)
BY_WORD = (
    (_OF_A_URL, URL, rf"\1{MASK}@"),
    (_OF_A_HEADER, HEADER, rf"\1\2{MASK}"),
    (_OF_A_TOKEN, KNOWN, MASK),
)
_GROUPS = (OF_A_NAME, _OF_A_HEADER, _OF_A_TOKEN, _OF_A_URL, OF_A_WEB_TOKEN, *(rule[0] for rule in RULES))
WORDS = tuple({word.expression.pattern: word for words in _GROUPS for word in words}.values())
