"""Write a tiny mixture-of-experts model into a directory: everything but weights.

Serve it with ``--load-format dummy``. Needs the standard library only.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

VOCABULARY = 512
END_OF_TEXT = "<|endoftext|>"
CHAT_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"


def byte_alphabet() -> list[str]:
    """Return the 256 characters that byte-level BPE writes for the 256 bytes, in the order of the bytes."""
    visible = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    invisible = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + invisible.index(byte)) for byte in range(256)]


def tokenizer() -> dict[str, object]:
    """Return a byte-level BPE without merges: one token per byte, and a token for every id the model can emit."""
    words = [END_OF_TEXT, *byte_alphabet()]
    words += [f"<unused{number}>" for number in range(VOCABULARY - len(words))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end_of_text = {
        "id": 0,
        "content": END_OF_TEXT,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    model: dict[str, object] = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {word: number for number, word in enumerate(words)},
        "merges": [],
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end_of_text],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }


def config(head_dim: int) -> dict[str, object]:
    """Return the shape of the model: two layers, eight experts, two of them used for each token."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "torch_dtype": "bfloat16",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": head_dim,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 512,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def write_model(directory: Path, head_dim: int = 32) -> None:
    """Write the four files that make a model directory."""
    files = {
        "config.json": config(head_dim),
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END_OF_TEXT,
            "bos_token": END_OF_TEXT,
            "model_max_length": 512,
            "chat_template": CHAT_TEMPLATE,
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 0},
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Read the command line and write the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--head-dim",
        type=int,
        default=32,
        help="32 serves; 16 makes a model that answers /health and dies at the first inference on the CPU",
    )
    words = parser.parse_args()
    write_model(words.directory, words.head_dim)


if __name__ == "__main__":
    main()
