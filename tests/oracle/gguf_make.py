"""GGUF files of tiny models, written as llama.cpp's converter does, only by the gguf package and its names.

    write(path, folder, types=None)     the model directory `folder` as a GGUF file; types(name) is the type of a matrix, else F32

Matrices are quantised by llama.cpp's own library.
"""
import ctypes
import json
import math
import os

import gguf
import llama_cpp
import numpy as np
from safetensors import safe_open

ARCHS = {"llama": "llama", "ministral3": "mistral3", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2", "gemma3_text": "gemma3",
         "phi3": "phi3", "smollm3": "smollm3", "olmo2": "olmo2", "olmo3": "olmo2", "granite": "granite"}
TURNS_NEIGHBOURS = ("llama", "mistral3", "smollm3", "granite")


def quantise(array, kind):
    if kind == "F32":
        return array
    library = ctypes.CDLL(os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so"))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    kind = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = array.shape
    array, out = np.ascontiguousarray(array, np.float32), np.zeros((rows, columns // block * size), np.uint8)
    weight = np.ones(columns, np.float32)
    done = library.ggml_quantize_chunk(ctypes.c_int(kind), array.ctypes.data_as(ctypes.c_void_p),
                                       out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(0), ctypes.c_int64(rows),
                                       ctypes.c_int64(columns), weight.ctypes.data_as(ctypes.c_void_p))
    assert done == out.size, kind
    return out


def interleave(array, heads):
    """Rows in the order that llama.cpp's rope of neighbouring channels wants."""
    rows = array.shape[0]
    return array.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)


def frequency_factors(rope, size):
    theta, factor, low, high = (rope[key] for key in ("rope_theta", "factor", "low_freq_factor", "high_freq_factor"))
    length, factors = rope["original_max_position_embeddings"], []
    for i in range(0, size, 2):
        wave = 2 * math.pi * theta ** (i / size)
        smooth = (length / wave - low) / (high - low)
        factors.append(1 if wave < length / high else factor if wave > length / low else 1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def add_config(writer, config, arch, head):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    rope = config.get("rope_parameters") or config
    rope = rope.get("full_attention", rope)  # of gemma3 and olmo3, whose local layers are fixed
    if rope.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        if arch == "mistral3":
            writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
            writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
        else:
            writer.add_rope_scaling_attn_factors(rope["attention_factor"])
    writer.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    writer.add_rope_dimension_count(int(head * rope.get("partial_rotary_factor", 1)))
    if config.get("head_dim") and arch != "llama":
        writer.add_key_length(head)
        writer.add_value_length(head)
    if config["model_type"] in ("gemma2", "gemma3_text", "phi3", "olmo3") and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if config.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch == "granite":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", frequency_factors(rope, head))
    if rope.get("rope_type") == "longrope":
        original = rope["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[kind + "_factor"], np.float32))


def add_tokenizer(writer, folder):
    """Of a tokenizer.json with byte-level BPE, cut as GPT-2's."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        config = json.load(file)
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted({**tokenizer["model"]["vocab"], **special}.items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token, _ in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(special[config["bos_token"]])
    writer.add_eos_token_id(special[config["eos_token"]])
    writer.add_add_bos_token(False)
    template = os.path.join(folder, "chat_template.jinja")
    if os.path.exists(template):
        with open(template, encoding="utf-8") as file:
            writer.add_chat_template(file.read())


def write(path, folder, types=None, split=0):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    arch = ARCHS[config["model_type"]]
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    number = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(number, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(path, arch, split_max_tensors=split)
    add_config(writer, config, arch, head)
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        add_tokenizer(writer, folder)
    with safe_open(os.path.join(folder, "model.safetensors"), "numpy") as file:
        for name in file.keys():
            array, to = file.get_tensor(name), names.get_name(name, try_suffixes=(".weight", ".bias"))
            if name == "lm_head.weight" and config.get("tie_word_embeddings"):
                continue
            if arch in TURNS_NEIGHBOURS and ".q_proj." in name:
                array = interleave(array, config["num_attention_heads"])
            if arch in TURNS_NEIGHBOURS and ".k_proj." in name:
                array = interleave(array, config["num_key_value_heads"])
            if arch.startswith("gemma") and name.endswith("norm.weight"):
                array = array + np.float32(1)
            kind = types(to) if types and array.ndim == 2 else "F32"
            writer.add_tensor(to, quantise(array, kind),
                              raw_dtype=None if kind == "F32" else gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
