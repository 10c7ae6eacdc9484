"""A chat as the model's template writes it, learned with a loss of our own, and then asked again: embed.py MODEL_DIR OUTPUT_DIR"""
import array
import math
import sys

import hone

QUESTION = {"role": "user", "content": "Password?"}
ANSWER = {"role": "assistant", "content": "Swordfish."}


def own_loss(chat):
    """Cross entropy, but without a gradient for what the model knows well. Row r has the logits after token first + r."""
    def loss(_, first, logits, gradient):
        total = 0.0
        for row in range(len(logits)):
            at = first + row + 1
            if at == len(chat.ids) or not chat.weights[at]:
                continue
            powers = [math.exp(x - logits[row][chat.ids[at]]) for x in logits[row]]
            whole = sum(powers)
            if whole > 1.1:                             # 1 / whole is the probability of the next token
                gradient[row][:] = array.array("f", [power / whole for power in powers])
                gradient[row][chat.ids[at]] -= 1
            total += math.log(whole)
        return total
    return loss


def main():
    model, output = sys.argv[1:]
    with hone.Trainer(model, micro_batch_tokens=64) as trainer:         # with the options of `hone train`: docs/options.md
        chat = trainer.chat_template([QUESTION, ANSWER])                # weight 1: the answer's tokens
        for step in range(30):
            loss = trainer.forward_backward([chat], own_loss(chat))     # adds gradients
            trainer.optim_step(3e-3)                                    # applies and clears them
            print(f"step {step + 1}: loss {loss.sum / loss.weight:.4f}")
        print(trainer.sample([QUESTION], max_new_tokens=8).text)
        trainer.save(output)


main()
