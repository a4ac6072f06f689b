"""What the requests of the canary look like on the wire."""

from __future__ import annotations

import email
import io
import wave

from safe_vllm.attempt.requests import KINDS, Question


def test_the_tone_is_a_form_with_a_wav_file() -> None:
    speech = next(kind for kind in KINDS if kind.needs_audio)
    sent = speech.ask(Question("a model", ("x",), 8))
    form = email.message_from_bytes(f"Content-Type: {sent.type}\r\n\r\n".encode() + sent.body)
    parts = {part.get_param("name", header="Content-Disposition"): part for part in form.get_payload()}  # type: ignore[union-attr]
    assert parts["model"].get_payload() == "a model"
    with wave.open(io.BytesIO(parts["file"].get_payload(decode=True))) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, 16_000)
        assert sound.getnframes() == 16_000
        assert len(set(sound.readframes(16_000))) > 100
