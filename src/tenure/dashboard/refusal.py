"""A request that is not answered as it was meant: a status and a sentence."""

from __future__ import annotations

from starlette.responses import Response

from tenure.dashboard.sections import encoded


class Refused(Exception):
    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers or {}

    def response(self) -> Response:
        return json_response({"error": self.sentence}, self.status, self.headers)


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(value), status, headers, media_type="application/json")
