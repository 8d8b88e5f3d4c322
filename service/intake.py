"""`POST /v1/telemetry`: a body is checked line by line, and handed on before it is answered.

    request ─bounded→ bytes ─unpack→ lines ─Decoder→ messages by run ─Sink→ topic or spool ─→ 202

What is answered with an error leaves nothing behind but a counter. What is answered with 202 has gone on
whole, rejected lines included: the worker rejects them once more, and is the only one that counts them in
the store and hands them to the dead-letter topic. All blocking work is done by a few threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Request, Response
from starlette.requests import ClientDisconnect

from ingest.blocks import Rejected
from ingest.decode import DecodeConfig, Decoder

from .intake_body import Claim, Media, Waiting, claim_of, held_bytes, received, unpacked
from .intake_config import IntakeConfig
from .intake_lines import Checked, check_json, check_lines
from .intake_models import IntakeReply, Reason, operation
from .intake_problem import PROBLEM_JSON, IntakeProblem, unavailable
from .intake_sinks import Sink, SinkRefused, SinkUnavailable
from .rejects import FURTHER_REASONS, RejectTally

PATH = "/v1/telemetry"
_MAX_REASONS = 200
"""Reasons counted one by one, as in an answer; the names of metrics are part of them."""


@dataclass(slots=True)
class IntakeCounts:
    """What came in so far, for `/metrics`; changed on the event loop alone."""

    accepted: int = 0
    """Records and events that were handed on and acknowledged."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Lines and values that were not understood, by reason; further reasons are one once there are many."""
    bodies: dict[int, int] = field(default_factory=dict)
    """Bodies by the status of their answer."""
    body_bytes: int = 0
    """Bytes received as they were sent."""
    refusal: str = ""
    """Why nothing could be handed on at the last try; empty where it could. Set by the threads."""

    def add_rejected(self, by_reason: Mapping[str, int]) -> None:
        """Count what one body had."""
        for reason, count in by_reason.items():
            is_known = reason in self.rejected or len(self.rejected) < _MAX_REASONS
            kept = reason if is_known else FURTHER_REASONS
            self.rejected[kept] = self.rejected.get(kept, 0) + count


def make_intake_router(
    sink: Sink,
    config: IntakeConfig,
    authorize: Callable[..., object] | None = None,
    *,
    decode: DecodeConfig | None = None,
    counts: IntakeCounts | None = None,
) -> APIRouter:
    """The route; ``authorize`` is a dependency that raises for who may not send telemetry.

    ``decode`` are the worker's settings: what is accepted here is understood there.
    """
    intake = _Intake(sink, config, decode or DecodeConfig(), counts or IntakeCounts())
    router = APIRouter(tags=["telemetry"], dependencies=[Depends(authorize)] if authorize else [])

    async def post_telemetry(request: Request) -> Response:
        """Send telemetry: JSON lines, a JSON document or an Arrow stream, also packed by gzip or zstd.

        Good lines are accepted though others are not; the answer lists why. The answer comes when the
        records are durable. Sending a body again does no harm.
        """
        return await intake.answer(request)

    router.post(PATH, status_code=202, response_model=IntakeReply, **operation())(post_telemetry)
    return router


class _Intake:
    """Takes one body after the other."""

    def __init__(self, sink: Sink, config: IntakeConfig, decode: DecodeConfig, counts: IntakeCounts) -> None:
        self._sink, self._config, self._counts = sink, config, counts
        self._decode = replace(
            decode,
            max_line_bytes=min(decode.max_line_bytes, config.max_message_bytes),
            max_message_rows=min(decode.max_message_rows, config.max_lines),
        )
        self._waiting = Waiting(config)
        self._limiter = CapacityLimiter(config.max_workers)
        # A decoder learns from what it reads and serves one thread at a time.
        self._decoders = [Decoder(self._decode) for _ in range(config.max_workers)]

    async def answer(self, request: Request) -> Response:
        """What is said of one request; never raises for anything that a sender does."""
        try:
            reply = await self._take(request)
            response = Response(reply.model_dump_json(), 202, media_type="application/json")
        except IntakeProblem as problem:
            request_id = request.scope.get("state", {}).get("request_id")
            response = Response(
                problem.document(request_id), problem.status, problem.headers, media_type=PROBLEM_JSON
            )
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody is there to read it
        bodies = self._counts.bodies
        bodies[response.status_code] = bodies.get(response.status_code, 0) + 1
        return response

    async def _take(self, request: Request) -> IntakeReply:
        claim = claim_of(request.headers, self._config)
        body = await received(request.stream(), claim, self._config, self._waiting)
        self._counts.body_bytes += len(body)
        try:
            checked, reply = await to_thread.run_sync(self._check, body, claim, limiter=self._limiter)
            self._counts.add_rejected(reply.rejected_by)
            if not checked.accepted:
                raise _nothing_accepted(reply)
            await to_thread.run_sync(self._hand_on, checked, limiter=self._limiter)
        finally:
            self._waiting.bytes -= held_bytes(body)
        self._counts.accepted += checked.accepted
        return reply

    def _check(self, body: bytes, claim: Claim) -> tuple[Checked, IntakeReply]:
        checked = self._checked(unpacked(body, claim, self._config), claim.media)
        return checked, reply_of(checked, self._config)

    def _checked(self, data: bytes, media: Media) -> Checked:
        if media is Media.ARROW:
            from .intake_arrow import check_arrow

            return check_arrow(data, self._decode, self._config)
        check = check_json if media is Media.JSON else check_lines
        decoder = self._decoders.pop()
        try:
            return check(data, decoder, self._config)
        finally:
            self._decoders.append(decoder)

    def _hand_on(self, checked: Checked) -> None:
        try:
            self._sink.send(checked.messages)
            self._counts.refusal = ""
        except SinkRefused as error:
            raise IntakeProblem(413, "too-large", str(error)) from error
        except SinkUnavailable as error:
            self._counts.refusal = str(error)
            members = {"acknowledged": error.acknowledged, "accepted": 0}
            told = f"{error}; {error.acknowledged} of {checked.accepted} records were acknowledged"
            raise unavailable(f"{told}; send the body again", self._config.retry_after_s, members) from error


def reply_of(checked: Checked, config: IntakeConfig) -> IntakeReply:
    """What a sender is told of a body."""
    tally = RejectTally()
    tally.add(checked.why)
    return IntakeReply(
        accepted=checked.accepted,
        rejected=checked.rejected,
        rejected_values=sum(not one.whole for one in checked.why),
        rejected_by=dict(sorted(tally.by_reason.items(), key=lambda item: (-item[1], item[0]))),
        reasons=_reasons(checked.why, config),
    )


def _reasons(why: Sequence[Rejected], config: IntakeConfig) -> list[Reason]:
    return [
        Reason(
            line=one.offset if one.offset > 0 else None,
            field=one.field,
            rule=one.rule,
            value=one.value,
            whole=one.whole,
        )
        for one in why[: config.max_reasons]
    ]


def _nothing_accepted(reply: IntakeReply) -> IntakeProblem:
    first = reply.reasons[0]
    where = f"line {first.line}: " if first.line is not None else ""
    told = f"{where}{first.field} {first.rule}, got {first.value}"
    detail = f"none of {reply.rejected} lines could be used; {told}"
    return IntakeProblem(422, "nothing-accepted", detail, members=reply.model_dump())
