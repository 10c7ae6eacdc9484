"""How tokens are chosen, and what ends an answer, by hone generate and hone chat.

    sampling.py HONE ASSETS DATA
"""
import json
import math
import subprocess

from case import HONE, TINY, Case, main

DRAWN = ("--temperature", 2, "--seed", 1, "--max-new-tokens", 40)


class Sampling(Case):
    def answer(self, *args):
        return json.loads(self.ok("generate", "--model", TINY, "--prompt", "Hi", "--json", *DRAWN, *args))

    # Breaks with an option that answer_options leaves out.
    def test_each_setting_reaches_the_choice(self):
        plain, greedy = self.answer()["answer"], self.answer("--temperature", 0)["answer"]
        self.assertEqual(self.answer("--top-k", 1)["answer"], greedy)
        self.assertEqual(self.answer("--min-p", 1)["answer"], greedy)
        self.assertNotEqual(greedy, plain)
        for changed in (("--repetition-penalty", 3), ("--presence-penalty", 2), ("--frequency-penalty", 2)):
            self.assertNotEqual(self.answer("--temperature", 0, *changed)["answer"], greedy, changed)
        first = self.answer("--logprobs", 1)["logprobs"][0]["id"]
        other = self.answer("--logprobs", 1, "--logit-bias", json.dumps({str(first): -100}))
        self.assertNotIn(first, [token["id"] for token in other["logprobs"]])

    # Breaks with the stop text in the answer, and with the text that is held left out where none comes.
    def test_an_answer_ends_where_a_stop_text_begins(self):
        whole = self.answer()["answer"]
        for at in range(0, len(whole) - 8, len(whole) // 5):
            stop = whole[at:at + 5]
            if "\ufffd" in stop or "\0" in stop:
                continue
            got = self.answer("--stop", json.dumps([stop + "\x01\x02", "never said", stop]))
            self.assertEqual((got["answer"], got["ended"]), (whole[:whole.index(stop)], True))
            self.assertEqual(self.ok("generate", "--model", TINY, "--prompt", "Hi", *DRAWN, "--stop", json.dumps([stop])), got["answer"] + "\n")
        self.assertEqual(self.answer("--stop", whole[-3:] + "?")["answer"], whole)

    def test_a_special_token_is_a_stop_text_too(self):
        id, text = next((token["id"], token["content"]) for token in json.loads((TINY / "tokenizer.json").read_text())["added_tokens"]
                        if token["special"] and token["content"] not in self.ends())
        got = self.answer("--stop", text, "--logit-bias", json.dumps({str(id): 100}), "--logprobs", 1)
        self.assertEqual((got["answer"], got["ended"], got["new_tokens"], got["logprobs"][0]["text"]), ("", True, 1, text))

    def ends(self):
        """Texts that may end an answer by themselves."""
        config = json.loads((TINY / "tokenizer_config.json").read_text()) if (TINY / "tokenizer_config.json").exists() else {}
        return str(config.get("eos_token"))

    # Breaks with alternatives of biased logits, and with the prompt's list in the place of the answer's.
    def test_log_probabilities_are_printed_as_json(self):
        got, plain = self.answer("--logprobs", 3, "--prompt-logprobs", 2, "--top-k", 5), self.answer("--top-k", 5)
        self.assertEqual((got["answer"], got["prompt_tokens"]), (plain["answer"], plain["prompt_tokens"]))
        self.assertNotIn("logprobs", plain)
        self.assertEqual((len(got["logprobs"]), len(got["prompt_logprobs"])), (got["new_tokens"], got["prompt_tokens"]))
        self.assertEqual((got["prompt_logprobs"][0]["logprob"], got["prompt_logprobs"][0]["top"]), (None, []))
        for tokens, count in ((got["logprobs"], 3), (got["prompt_logprobs"][1:], 2)):
            for token in tokens:
                self.assertEqual(len(token["top"]), count)
                self.assertEqual(token["top"], sorted(token["top"], key=lambda one: -one["logprob"]))
                self.assertLessEqual(sum(math.exp(one["logprob"]) for one in token["top"]), 1)
                self.assertLessEqual(token["logprob"], token["top"][0]["logprob"])
        self.assertTrue("".join(token["text"] for token in got["logprobs"]).startswith(got["answer"][:1]))
        self.fails(2, "generate", "--model", TINY, "--prompt", "Hi", "--logprobs", 2, says=["--json"])

    # Breaks with hone_model_sampling leaving out the stop texts.
    def test_a_chat_has_the_same_settings(self):
        for args in (("--top-k", 1), ("--repetition-penalty", 3, "--temperature", 0), ("--stop", self.answer()["answer"][4:7])):
            said = subprocess.run([HONE, "chat", "--model", TINY, "--json", *map(str, (*DRAWN, *args))], input="Hi\n", capture_output=True,
                                  text=True, check=True)
            self.assertEqual(json.loads(said.stdout)["answer"], self.answer(*args)["answer"])


main(Sampling, Sampling)
