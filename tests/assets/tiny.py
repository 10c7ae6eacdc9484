"""tiny.py PATH CHATS CONFIG: a seeded random model of a family, with a tokenizer learnt from the chats."""
import json
import sys

import tokenizers as tk
import torch
import transformers as tf

TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def tokenizer(chats, size):
    """A byte-level BPE."""
    bpe = tk.Tokenizer(tk.models.BPE())
    bpe.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tk.decoders.ByteLevel()
    bpe.train([chats], tk.trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tf.PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<|im_start|>", eos_token="<|im_end|>",
                                      pad_token="<|endoftext|>", chat_template=TEMPLATE)


path, chats, config = sys.argv[1:]
config = json.loads(config)
family = config.pop("family")
torch.manual_seed(1234)
getattr(tf, family + "ForCausalLM")(getattr(tf, family + "Config")(**config)).float().save_pretrained(path)
tokenizer(chats, config["vocab_size"]).save_pretrained(path)
