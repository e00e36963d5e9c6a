"""No secret is shown: not in URLs, not in errors, not in what servers and libraries say."""

from __future__ import annotations

import time
import traceback

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from tenure.errors import InvalidUrl
from tenure.store.cloud.failures import explain, read
from tenure.store.url import OPTIONS, SECRET_OPTIONS, parse_url, redact

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
SECRET_BY_SCHEME = [(scheme, name) for scheme in OPTIONS for name in sorted(OPTIONS[scheme] & SECRET_OPTIONS)]

# As servers, object_store and reqwest write them.
TEXTS = {
    "sas": f"GET https://acc.blob.core.windows.net/c/k?sv=2023-01-03&se=2030&sr=c&sp=rw&sig={SECRET}%3D in 1ms",
    "presigned": f"GET https://b.s3.amazonaws.com/k?X-Amz-Credential=AKIA&X-Amz-Signature={SECRET}&x=1",
    "session": f"https://b.s3.amazonaws.com/k?X-Amz-Security-Token={SECRET}",
    "presigned v2": f"https://b.s3.amazonaws.com/k?AWSAccessKeyId=AKIA&Signature={SECRET}&Expires=1",
    "google": f"https://storage.googleapis.com/b/k?GoogleAccessId=me&X-Goog-Signature={SECRET}",
    "quoted query": f"redirect=https%3A%2F%2Facc.net%2Fc%3Fsv%3D1%26sig%3D{SECRET}",
    "header": f"Authorization: AWS4-HMAC-SHA256 Credential=AKIA/20300101, Signature={SECRET}",
    "header debug": f'"authorization": "Bearer {SECRET}", "host": "h"',
    "header in Python": f"{{'Authorization': 'Bearer {SECRET}', 'Host': 'h'}}",
    "header in JSON in JSON": f'"{{\\"authorization\\": \\"Bearer {SECRET}\\"}}"',
    "header as a pair": f"[(b'Authorization', b'Bearer {SECRET}')]",
    "headers as lists": f"{{'authorization': ['Bearer {SECRET}']}}",
    "user info": f"http://admin:{SECRET}@proxy.corp:8080/",
    "string to sign": f"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>AWS4\n{SECRET}\n</StringToSign></Error>",
    "canonical": f"<Error><Code>X</Code><CanonicalRequest>GET\n{SECRET}</CanonicalRequest></Error>",
    "signature": f"<SignatureProvided>{SECRET}</SignatureProvided>",
    "key id": f"<Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>{SECRET}</AWSAccessKeyId></Error>",
    "key element": f"<Credentials><AccessKeyId>{SECRET}</AccessKeyId></Credentials>",
    "secret element": f"<Credentials><SecretAccessKey>{SECRET}</SecretAccessKey></Credentials>",
    "token element": f"<SessionToken>\n{SECRET}</SessionToken>",
    "form": f"grant_type=x&client_secret={SECRET}&scope=y",
    "token": f"?token={SECRET}",
    "single quotes": f"password='{SECRET}'",
    "double quotes": f'secret_access_key="{SECRET}"',
    "a space in quotes": f'password="SE {SECRET}"',
    "a quotation in quotes": f'password="SE\\"{SECRET}"',
    "quotes that do not end": f"password='SE {SECRET}",
    "spaces": f"aws_session_token = {SECRET}",
    "a word and spaces": f"token = {SECRET}",
    "json": f'{{"secret_access_key":"{SECRET}"}}',
    "json in json": f'"{{\\"secret_access_key\\": \\"{SECRET}\\"}}"',
    "json of a word": f'{{"token": "{SECRET}"}}',
    "python": f"{{'SecretAccessKey': '{SECRET}', 'SessionToken': '{SECRET}'}}",
    "azure": f"AccountName=a;AccountKey={SECRET};EndpointSuffix=core.windows.net",
    "a header": f"x-amz-security-token: {SECRET}",
    "yaml": f"secret_access_key: {SECRET}",
    "hyphens": f"?secret-access-key={SECRET}",
    "quoted twice": f"sig%253D{SECRET}",
    "our own": f"s3://b?secret_access_key={SECRET}&region=x",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_redact_takes_the_secret_out(text: str) -> None:
    assert SECRET not in redact(text)
    assert "***" in redact(text)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_no_explanation_holds_the_secret(text: str) -> None:
    said = f"<Error><Code>Odd</Code><Message>{text}</Message></Error>"
    for error in (
        GenericError(f"Generic S3 error: {text}\n\nDebug source:\nGeneric {{ {text} }}"),
        GenericError(
            f"Generic S3 error: Server returned non-2xx status code: 500 Oops: {said}\n\nDebug source:\n{text}"
        ),
        PermissionDeniedError(f"for path k: Server returned non-2xx status code: 403 Forbidden: {said}"),
        GenericError(f"path External AWS credential provider: RuntimeError: {text}\n\nDebug source:\n{text}"),
    ):
        assert SECRET not in str(explain("get 'k'", error, "s3://bucket"))
        assert SECRET not in read(error).text


@pytest.mark.parametrize(
    "plain",
    [
        "the region 'us-east-1' is wrong; expecting 'eu-west-1'",
        "http://127.0.0.1:9000/b/k",
        "a@b.c",
        "no authorization, says the server",
        "token: 7",
        "token = 7",
        '{"token": 7}',
        "wrong token: sign in again",
        "the token 'x' is none",
        "UPDATE items SET token = 7 WHERE token <= 8",
    ],
)
def test_what_is_no_secret_stays(plain: str) -> None:
    assert redact(plain) == plain


@pytest.mark.parametrize(("scheme", "option"), SECRET_BY_SCHEME)
def test_secret_options_are_kept_and_not_shown(scheme: str, option: str) -> None:
    url = parse_url(f"{scheme}://bucket/prefix?{option}={SECRET}")
    assert url.options[option] == SECRET
    for shown in (url.shown, repr(url), str(url), f"{url}"):
        assert SECRET not in shown
        assert option not in shown
    assert SECRET not in repr(url.__rich_repr__())


def test_every_secret_option_belongs_to_a_scheme() -> None:
    assert {name for _, name in SECRET_BY_SCHEME} == SECRET_OPTIONS


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIA:{SECRET}@bucket/prefix",
        f"s3://AKIA:abc/{SECRET}@bucket/prefix",
        f"s3://AKIA:{SECRET[:9]}/{SECRET}+x/y@bucket/prefix",
        f"s3://{SECRET}@bucket",
        f"s3://bucket:{SECRET}/x",
        f"ftp://me:{SECRET}@host",
        f"AKIA:{SECRET}@s3://bucket/prefix",
        f"AKIA:abc/{SECRET}@s3://bucket/prefix",
        f"AKIA:{SECRET}@s3://me:{SECRET}@bucket/prefix",
        f"s3://bucket#?sig={SECRET}",
        f"s3://bucket/a//b?secret_access_key={SECRET}",
        f"s3://[bucket?secret_access_key={SECRET}",
        f"s3://b?secret_access_key={SECRET}&secret_access_key=x",
        f"s3://b?secret_access_key={SECRET}&colour=red",
        f"s3://?secret_access_key={SECRET}",
        f"az://c?sas_token=sv=2020&sig={SECRET}",
        f"s3://b?endpoint=http://me:{SECRET}@minio:9000",
        f"s3://b?endpoint=http://{SECRET}@minio:9000/base",
        f"s3://b?endpoint=http://me:x%2F{SECRET}@minio:9000/base",
        f"s3://b?endpoint=https://me:{SECRET}@host?x",
        f"s3://b?endpoint=https://me:{'p' * 60}{SECRET}@host?x",
        f"file://me:{SECRET}@host/dir",
        f"file:///?sig={SECRET}",
        f"data/app?sig={SECRET}",
        f'gs://b?service_account={{"private_key":"{SECRET}"}}',
        f"s3://b/p&secret_access_key={SECRET}",
        f"s3://b/p&secret-access-key={SECRET}",
        f"s3://b/p%3Fsecret-access-key={SECRET}",
        f"s3://b/p%26my_key={SECRET}//x",
        f"s3://b/p;sig={SECRET}",
        f"s3://b&secret_access_key={SECRET}",
        f"s3://AKIA:a&{SECRET}@bucket#x",
        f"s3://b?secret_access_key%3D{SECRET}",
        f"s3://b?secret_access_key%253D{SECRET}",
        f"s3://b?colour:{SECRET}",
        f"s3://b?virtual_hosted=1%26secret_access_key%3D{SECRET}",
        f"s3://b?auth=login%26secret-access-key%3D{SECRET}",
        f"s3://b?endpoint=h:1%26secret-access-key={SECRET}",
        f"file://host/p%3Fsig={SECRET}",
        f"file://host/p&sig={SECRET}",
        f"file://host&key={SECRET}/p",
        f"//me:{SECRET}@host:port",
        f"AKIA:{SECRET}@bucket/prefix",
        f"s3:/b&secret_key={SECRET}",
    ],
)
def test_a_refused_url_is_not_quoted_with_its_secret(url: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        parse_url(url)
    assert SECRET[:20] not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["StringToSign", "canonicalrequestbytes"])
def test_an_element_that_was_cut_off_is_hidden_to_the_end(name: str) -> None:
    text = f"before <{name}>AWS4 {SECRET} and what"
    assert redact(text) == f"before <{name}>***</{name}>"


def test_what_follows_an_element_stays() -> None:
    text = "<StringToSign>a</STRINGTOSIGN><Code>X</Code><AWSAccessKeyId>b</AWSAccessKeyId>!"
    assert redact(text) == "<StringToSign>***</StringToSign><Code>X</Code><AWSAccessKeyId>***</AWSAccessKeyId>!"


HOSTILE = {
    "openings": "<StringToSign>" * 40_000,
    "spaces": "<Message>" + " " * 500_000,
    "messages": "<Message> " * 50_000,
    "codes": "<Code> " * 70_000,
    "a code": "<Code>" + "a" * 500_000,
    "headers": "authorization " * 40_000,
    "users": "://a" * 130_000,
    "parameters": "sig=" * 130_000,
    "names": "secret_access_key " * 30_000,
    "names in quotes": '"password"' * 50_000,
    "quotes": "sig='" * 100_000,
    "mixed quotes": "sig='sig=\"" * 50_000,
    "spaces before =": ("sig" + " " * 30) * 15_000,
    "spaces after =": ("token =" + " " * 30) * 15_000,
    "one gap": "password" + " " * 500_000 + "=x",
    "backslashes": 'sig="' + "\\" * 500_000,
    "backslashes before": ("sig=" + "\\" * 30) * 15_000,
    "digits": "token = " * 50_000 + "7" * 200_000,
    "percent": "sig%25" * 80_000 + "sig%" + "25" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_answer_that_is_made_to_be_slow_is_not(text: str) -> None:
    """With the square of their length, or more, these take minutes: on the loop that renews a lease."""
    began = time.process_time()
    redact(text)
    explain("get 'k'", GenericError(f"Server returned non-2xx status code: 403 Forbidden: {text}"), "s3://bucket")
    assert time.process_time() - began < 5
