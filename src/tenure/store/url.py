"""Store URLs: what they may say, and how they are shown without their secrets.

    memory://                     gone with the process; memory://NAME is shared within it
    file:///var/lib/app           a local directory; ?shared=1 allows a network file system that passes the races
    s3://bucket/prefix            ?region= &endpoint= &profile= &role_arn= &auth=login &virtual_hosted=1
    gs://bucket/prefix            ?auth=login &service_account= &endpoint=
    az://container/prefix         ?account= &endpoint= &auth=login

Secrets belong in the environment, but may be given (`access_key_id`, `secret_access_key`, `session_token`,
`account_key`, `sas_token`, `bearer_token`); wherever a URL is shown they are taken out.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from tenure.errors import InvalidUrl
from tenure.store.keys import MAX_PREFIX_BYTES, flaw, is_key

OPTIONS: dict[str, frozenset[str]] = {
    "memory": frozenset(),
    "file": frozenset({"shared"}),
    "s3": frozenset(
        {"region", "endpoint", "profile", "role_arn", "auth", "virtual_hosted"}
        | {"access_key_id", "secret_access_key", "session_token"}
    ),
    "gs": frozenset({"endpoint", "auth", "service_account", "bearer_token"}),
    "az": frozenset({"account", "endpoint", "auth", "account_key", "sas_token"}),
}
SECRET_OPTIONS = frozenset(
    {"access_key_id", "secret_access_key", "session_token", "account_key", "sas_token", "bearer_token"}
)
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
"""No credential has one, and no header may."""
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]{0,221}")
_FLAGS = frozenset({"shared", "virtual_hosted"})
HIDDEN = "***"
_LONGEST_HINT = 200

# Signatures and tokens as they occur in what servers and client libraries say, and in what programs log: as
# parameters, headers, JSON and settings. Every repetition is bounded or cannot fail, so that the time is linear.
_NAMES = (
    r"(?:aws)?access[-_]?key(?:[-_]?id)?|(?:aws)?secret[-_]?(?:access[-_]?)?key|x-amz-credential|googleaccessid|"
    r"(?:session|security|sas|bearer|access|refresh|id)[-_]?token|(?:account|api|private)[-_]?key|"
    r"client[-_]?secret|sharedaccesssignature"
)
# Words of prose as well ("wrong token: sign in again"), and a fencing token is a number: after a colon they need
# quotes, and with spaces around the = anything but a number.
_WORDS = r"sig|signature|token|password|passwd|secret"
_GAP = r"[ \t]{0,20}"
_CLOSED = r"(?:\\{0,3}[\"'])?"
_QUOTED = r"\\{1,3}\"[^\"]*\"?|\\{1,3}'[^']*'?|\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?"
_SECRET_PARAMETER = re.compile(
    r"(?is)(?:\b|(?<=_)|(?<=%26)|(?<=%3F))("
    rf"(?:{_NAMES}){_CLOSED}{_GAP}[=:]{_GAP}|"
    rf"(?:{_NAMES}|{_WORDS})(?:=|%(?:25)*3D)|"
    rf"(?:{_WORDS}){_CLOSED}{_GAP}(?:={_GAP}(?!\d+\b)|:{_GAP}(?=\\{{0,3}}[\"']))"
    rf")(?:{_QUOTED}|[^&\s\"'<>,;)]+)"
)
_SECRET_NAME = re.compile(rf"(?i)(?:.*[^a-z0-9])?(?:{_NAMES}|{_WORDS}|authorization|cookie)")
_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_ELEMENT = re.compile(
    r"(?i)<((?:AWS)?AccessKeyId|SecretAccessKey|SessionToken|SignatureProvided|StringToSign\w*|CanonicalRequest\w*)>"
)
# In headers as a list of pairs it is followed by a comma.
_AUTHORIZATION = re.compile(rf"(?i)(authorization(?:{_CLOSED}\s*[:=]|\\{{0,3}}[\"'],)\s*)[^\n]+")
_USER_INFO = re.compile(r"(?<=://)[^/@\s?#]+@")

# Where a query begins that was mistyped, or quoted once too often.
_QUERY = re.compile(r"(?i)[?&;]|%(?:25)*(?:3F|26|3B)")
_NAMED_SCHEME = re.compile(r"[A-Za-z0-9+.-]{1,20}(?=://)")
_OPTION_WORD = re.compile(r"[A-Za-z0-9_.-]{0,40}")


class StoreUrl(msgspec.Struct, frozen=True):
    """A store URL, taken apart and checked. Its repr, and `shown`, are without secrets."""

    scheme: str
    bucket: str
    """Bucket, container, or name of a memory store; empty for a directory."""
    prefix: str
    """Folder within the bucket: empty, or ending in `/`."""
    path: Path | None
    options: dict[str, str]

    @property
    def shown(self) -> str:
        options = {name: value for name, value in self.options.items() if name not in SECRET_OPTIONS}
        query = "?" + urlencode(options, safe=":/", quote_via=quote) if options else ""
        if self.path is not None:
            return f"file://{quote(str(self.path))}{redact(query)}"
        place = f"{self.bucket}/{self.prefix}" if self.prefix else self.bucket
        return f"{self.scheme}://{place}{redact(query)}"

    def text(self) -> str:
        """The whole URL, secrets included: only to be handed to another process of ours, never to be shown."""
        query = "?" + urlencode(self.options, quote_via=quote) if self.options else ""
        place = quote(str(self.path)) if self.path is not None else f"{self.bucket}/{self.prefix}"
        return f"{self.scheme}://{place}{query}"

    def flag(self, name: str) -> bool:
        return self.options.get(name) == "1"

    def __repr__(self) -> str:
        return f"StoreUrl({self.shown!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("shown", self.shown)]  # rich would print every field otherwise, in tracebacks too


def parse_url(url: str) -> StoreUrl:
    """Take a store URL apart; refuse what no store could use, before anything is opened."""
    if not isinstance(url, str):
        raise InvalidUrl(f"a store URL is text, and not a {type(url).__name__}: give e.g. 's3://bucket/prefix'")
    try:
        parts = urlsplit(url)
        has_user, has_port = bool(parts.username or parts.password), parts.port is not None
    except ValueError:  # its text quotes what may be half of a password
        raise InvalidUrl(
            f"a store URL that begins with {_named_scheme(url)}:// cannot be read: "
            "between :// and the next / goes the bucket alone, without user, password or port"
        ) from None
    scheme = parts.scheme
    if scheme not in OPTIONS:
        known = ", ".join(f"{name}://" for name in ("s3", "gs", "az", "file", "memory"))
        place = url.partition("?")[0]
        hint = (
            f"; for a local directory write file://{quote(str(Path(place).absolute()), errors='replace')}"
            if _looks_like_path(url) and _presentable(url) == place  # else it would repeat what is kept back
            else ""
        )
        raise InvalidUrl(f"store URL {_shorten(url)!r} does not begin with one of {known}{hint}")
    if parts.fragment:
        raise InvalidUrl(f"store URL {_shorten(url)!r} has a #fragment: write # in a name as %23")
    if has_user or has_port:
        raise InvalidUrl(
            f"store URL {_shorten(url)!r} has a user, password or port before the bucket: give the server as "
            "?endpoint=… and credentials by the environment"
        )
    options = _options(scheme, parts.query)
    if scheme == "file":
        return StoreUrl(scheme, "", "", _directory(url, parts.netloc, parts.path), options)
    if scheme == "memory":
        return StoreUrl(scheme, unquote(parts.netloc + parts.path), "", None, options)
    if not parts.netloc:
        raise InvalidUrl(f"store URL {_shorten(url)!r} names no bucket: write {scheme}://BUCKET/PREFIX")
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidUrl(f"store URL {_shorten(url)!r} names no possible bucket: they have letters, digits and - _ .")
    return StoreUrl(scheme, parts.netloc, _prefix(url, parts.path), None, options)


def check_endpoint(name: str, endpoint: str) -> str:
    """Give back a server's address; `name` says where it came from if it is none."""
    if not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#@\s]*)?", endpoint):
        shown = _QUERY.split(_without_user(endpoint), maxsplit=1)[0][:80]
        raise InvalidUrl(f"{name} is {shown!r}: write it as https://HOST[:PORT], without a user")
    return endpoint


def redact(text: str) -> str:
    """`text` without what may be a secret in it."""
    text = _SECRET_PARAMETER.sub(lambda found: found[1] + HIDDEN, text)
    text = _without_elements(text)
    text = _AUTHORIZATION.sub(lambda found: found[1] + HIDDEN, text)
    return _USER_INFO.sub(f"{HIDDEN}@", text)


def is_secret_name(name: str) -> bool:
    """Is it the name of a field that holds a secret: `token`, `db_password`, `secretAccessKey`?"""
    name = name[:200]
    return bool(_SECRET_NAME.fullmatch(name) or _SECRET_NAME.fullmatch(_INNER_CAPITAL.sub("_", name)))


def _without_elements(text: str) -> str:
    """An element that does not end was cut off, and is hidden to the end. By `find`, since an expression that looks for
    both ends takes the square of the time of a text that is full of beginnings."""
    lowered, kept, at = text.lower(), [], 0
    while found := _SECRET_ELEMENT.search(text, at):
        closing = f"</{found[1]}>"
        end = lowered.find(closing.lower(), found.end())
        kept += [text[at : found.end()], HIDDEN, closing]
        if end < 0:
            return "".join(kept)
        at = end + len(closing)
    return "".join(kept) + text[at:]


def _options(scheme: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    # A + stands for itself: keys of AWS hold some, and nobody writes spaces into a store URL.
    for name, value in parse_qsl(query.replace("+", "%2B"), keep_blank_values=True):
        if name not in OPTIONS[scheme]:
            known = ", ".join(sorted(OPTIONS[scheme])) or "none"
            raise InvalidUrl(f"a {scheme}:// URL has no option {_option_word(name)!r}; it takes: {known}")
        if name in options:
            raise InvalidUrl(f"option {name!r} is given twice in the store URL")
        if not value:
            raise InvalidUrl(f"option {name!r} of the store URL is empty: give it a value or leave it out")
        if name in SECRET_OPTIONS and CONTROL_CHARACTER.search(value):
            raise InvalidUrl(
                f"option {name!r} of the store URL holds a control character, such as the end of a line: leave it out"
            )
        if name in _FLAGS and value not in ("0", "1"):
            raise InvalidUrl(f"option {name!r} of the store URL is {_presentable(value)[:40]!r}: write 1 or 0")
        options[name] = value
    if options.get("service_account", "").lstrip().startswith("{"):
        raise InvalidUrl("option 'service_account' of the store URL holds a key itself: give the path of its file")
    if options.get("auth", "login") != "login":
        raise InvalidUrl(
            f"option 'auth' of the store URL is {_presentable(options['auth'])[:40]!r}: the only value is 'login'"
        )
    if "endpoint" in options:
        check_endpoint("option 'endpoint'", options["endpoint"])
    return options


def _directory(url: str, host: str, path: str) -> Path:
    if host not in ("", "localhost"):
        raise InvalidUrl(
            f"store URL {_shorten(url)!r} names the host {_presentable(host)!r}: write "
            f"file:///{_presentable(host + path)[:120]} with three slashes for an absolute path"
        )
    directory = Path(unquote(path))
    if not directory.is_absolute() or directory == Path("/") or "\0" in str(directory):
        raise InvalidUrl(f"store URL {_shorten(url)!r} names no directory: write file:///absolute/path")
    return directory


def _prefix(url: str, path: str) -> str:
    prefix = unquote(path).strip("/")
    if not prefix:
        return ""
    if not is_key(prefix):
        raise InvalidUrl(f"the prefix of store URL {_shorten(url)!r} cannot be used: it {flaw(prefix)}")
    if len(prefix) > MAX_PREFIX_BYTES:
        raise InvalidUrl(f"the prefix of store URL {_shorten(url)!r} is over {MAX_PREFIX_BYTES} characters")
    return prefix + "/"


def _looks_like_path(url: str) -> bool:
    return "://" not in url and bool(url.strip()) and len(url) <= _LONGEST_HINT


def _without_user(url: str) -> str:
    """A password may hold a `/`, so all before the last `@` is taken for one; without `://`, if it holds a `:`. It may
    stand before the scheme, too."""
    start, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    if "@" in start:
        start = f"{HIDDEN}@{start.rpartition('@')[2]}"
    user, at, place = rest.rpartition("@")
    return redact(f"{start}{slashes}{HIDDEN}@{place}" if at and (slashes or ":" in user) else start + slashes + rest)


def _presentable(text: str) -> str:
    """`text` of a URL up to where a query may begin, which may hold secrets under any name. A user goes first: a
    password may hold what looks like that beginning."""
    return _QUERY.split(_without_user(text.partition("?")[0]), maxsplit=1)[0]


def _shorten(url: str) -> str:
    place = _presentable(url)
    return place if len(place) <= 120 else place[:120] + "…"


def _named_scheme(url: str) -> str:
    """Of a URL that cannot be taken apart; one without a scheme begins with what may be a password."""
    found = _NAMED_SCHEME.match(url)
    return found[0] if found else ""


def _option_word(name: str) -> str:
    """Of an option that there is not: a `=` that was quoted makes a name of the value as well."""
    found = _OPTION_WORD.match(name)
    assert found is not None
    return found[0]
