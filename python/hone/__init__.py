"""libhone from Python: fine-tuning of large language models, with no dependency but the library itself.

    import hone
    with hone.Trainer("path/to/model", lora_r=8) as trainer:
        chat = trainer.chat_template([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}])
        for _ in range(10):
            trainer.forward_backward([chat])
            print(trainer.optim_step(1e-3).loss)
        print(trainer.sample([{"role": "user", "content": "Hi"}], max_new_tokens=16).text)
        trainer.save("adapter")

Keyword arguments are the options of the program (docs/options.md). What fails raises hone.Error, whose message says what, where and
what to do. Messages go to the logger "hone". A handle is used by one thread at a time; the interpreter's lock is released while the
library computes. Signals wait until a call has returned, or a function that it calls begins: so Ctrl-C ends an answer that is
streamed. The functions are those of hone.h, which says the rest.
"""
import collections
import ctypes
import json
import logging
import os
import pathlib
import signal

__all__ = ["Error", "Model", "Trainer", "Sequence", "Answer", "Loss", "Step", "version"]

_int, _real, _pointer, _text = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p, ctypes.c_char_p
_ids, _floats = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_float)


def _find():
    """$HONE_LIBRARY, which is an absolute path; the library next to this file or in the wheel; or the system's."""
    here = pathlib.Path(__file__).parent
    bundled = sorted([*here.glob("libhone.so*"), *here.glob("lib/libhone.so*")])
    own = os.environ.get("HONE_LIBRARY")
    if own and not os.path.isabs(own):
        raise ImportError(f"HONE_LIBRARY is {own}, which is not an absolute path: the working directory may be anybody's")
    return own or (str(bundled[0]) if bundled else "libhone.so.0")


try:
    _lib = ctypes.CDLL(_find())
except OSError as error:
    raise ImportError(f"libhone is not here ({error}): install hone, or set HONE_LIBRARY to the path of libhone.so") from None


class Error(Exception):
    """A call that failed: its message, and `status`, the number of a hone_status (which is also an exit code of the program)."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


# --- the structs of hone.h --------------------------------------------------------------------------------------------------


class _Sequence(ctypes.Structure):
    _fields_ = [("ids", _ids), ("weights", _floats), ("count", _int)]


class _Sized(ctypes.Structure):
    def __init__(self, **values):
        super().__init__(size=ctypes.sizeof(self), **values)


class _Sampling(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("max_new_tokens", _int), ("temperature", _real), ("top_p", _real), ("seed", _int),
                ("stop_tokens", _ids), ("stop_count", _int)]


class _Generated(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("prompt_tokens", _int), ("new_tokens", _int), ("ended", ctypes.c_int),
                ("startup_seconds", _real), ("prefill_seconds", _real), ("decode_seconds", _real), ("reused_tokens", _int)]


class _Loss(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("sum", _real), ("weight", _real), ("tokens", _int)]


class _Step(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("step", _int), ("epoch", _real), ("loss", _real), ("grad_norm", _real),
                ("learning_rate", _real), ("tokens", _int), ("trained_tokens", _int), ("seconds", _real), ("applied", ctypes.c_int)]


_TokenSink = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.c_int32, _real, _pointer, ctypes.c_size_t)
_Gradient = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _int, _int, _int, _int, _floats, _floats, ctypes.POINTER(_real))

# Every function that returns a status, by its arguments.
_CALLS = {
    "hone_options_create": [ctypes.POINTER(_pointer), _text],
    "hone_options_set": [_pointer, _text, _text],
    "hone_model_open": [ctypes.POINTER(_pointer), _pointer],
    "hone_tokenize": [_pointer, _text, ctypes.c_size_t, ctypes.c_uint, ctypes.POINTER(ctypes.POINTER(_Sequence))],
    "hone_detokenize": [_pointer, _ids, _int, ctypes.c_uint, ctypes.POINTER(_pointer), ctypes.POINTER(ctypes.c_size_t)],
    "hone_encode_chat": [_pointer, _text, ctypes.c_uint, ctypes.POINTER(ctypes.POINTER(_Sequence))],
    "hone_logprobs": [_pointer, ctypes.POINTER(_Sequence), _int, _floats],
    "hone_sample_tokens": [_pointer, _ids, _int, ctypes.POINTER(_Sampling), _TokenSink, _pointer, ctypes.POINTER(_Generated)],
    "hone_trainer_open": [ctypes.POINTER(_pointer), _pointer, ctypes.c_uint],
    "hone_trainer_forward_backward": [_pointer, ctypes.POINTER(_Sequence), _int, ctypes.POINTER(_Loss)],
    "hone_trainer_forward_backward_with": [_pointer, ctypes.POINTER(_Sequence), _int, _Gradient, _pointer, ctypes.POINTER(_Loss)],
    "hone_trainer_optim_step": [_pointer, _real, ctypes.POINTER(_Step)],
    "hone_trainer_eval": [_pointer, ctypes.POINTER(_real)],
    "hone_trainer_logprobs": [_pointer, ctypes.POINTER(_Sequence), _int, _floats],
    "hone_trainer_sample_tokens": [_pointer, _ids, _int, ctypes.POINTER(_Sampling), _TokenSink, _pointer, ctypes.POINTER(_Generated)],
    "hone_trainer_save": [_pointer, _text],
    "hone_trainer_save_state": [_pointer, _text],
    "hone_trainer_load_state": [_pointer, _text],
}
for _name, _arguments in _CALLS.items():
    getattr(_lib, _name).argtypes = _arguments
    getattr(_lib, _name).restype = ctypes.c_int
for _name in ("hone_options_destroy", "hone_model_close", "hone_trainer_close", "hone_text_destroy", "hone_sequence_destroy"):
    getattr(_lib, _name).argtypes = [_pointer]
    getattr(_lib, _name).restype = None
_lib.hone_error.restype = _lib.hone_version.restype = _text

version = __version__ = _lib.hone_version().decode()
_ARGUMENT, _STOPPED = 2, 10
_SAMPLE, _LOGITS, _LOGPROBS = 1, 2, 64


# A signal's handler must not run on a thread that computes (hone.h says why), except for what a thread causes itself.
_HELD = signal.valid_signals() - {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS,
                                  signal.SIGABRT}


def _call(name, *arguments):
    if arguments[0] is None:
        raise Error(_ARGUMENT, f"this {'trainer' if name.startswith('hone_trainer') else 'model or trainer'} is closed: open another")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        status = getattr(_lib, name)(*arguments)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if status:
        raise Error(status, _lib.hone_error().decode())


@ctypes.CFUNCTYPE(None, _pointer, ctypes.c_int, _text)
def _log(_, level, message):
    logging.getLogger("hone").log((logging.DEBUG, logging.INFO, logging.WARNING)[level], "%s", message.decode(errors="replace"))


_lib.hone_set_log(_log, None)


# --- what goes in and comes out -----------------------------------------------------------------------------------------------

Sequence = collections.namedtuple("Sequence", "ids weights", defaults=[None])
Sequence.__doc__ = "Tokens, and the weight of each token's loss: None means 1 for all but the first."
Answer = collections.namedtuple("Answer", "text ids logprobs ended")
Answer.__doc__ = "Its text, its tokens with their log-probabilities, and whether the model ended it."
Loss = collections.namedtuple("Loss", "sum weight tokens")
Loss.__doc__ = "The sum of weighted losses and the sum of weights: sum / weight is the mean."
Step = collections.namedtuple("Step", "step epoch loss grad_norm learning_rate tokens trained_tokens seconds applied")
Step.__doc__ = "An optimizer step; applied is False if its loss or gradient was not finite, and nothing was changed."


_EXPECTED = "a list of sequences is expected, each a hone.Sequence, as chat_template makes it, or a list of token ids"


def _array(kind, values):
    values = list(values)
    return (kind * len(values))(*values)


def _whole(value, bits, what):
    """A whole number as it is: ctypes would cut off what is above its bits."""
    if isinstance(value, int) and not -1 << bits - 1 <= value < 1 << bits - 1:
        raise ValueError(f"{what} {value}: it has more than {bits} bits")
    return value


def _tokens(values):
    """An array of token ids."""
    return _array(ctypes.c_int32, (_whole(value, 32, "token") for value in values))


def _bytes(text, what):
    """A path or another text for C, where a zero byte would end it."""
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError(f"{what} {text!r}: it has a zero byte")
    return data


def _unlike(values):
    """What is no list, or one only by accident."""
    return isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__")


def _sequences(sequences):
    """An array for the library, the number of its sequences, and what must live as long as it."""
    kept, rows = [], []
    sequences = [sequences] if isinstance(sequences, Sequence) else sequences
    if _unlike(sequences):
        raise TypeError(f"{type(sequences).__name__} given: {_EXPECTED}")
    for sequence in sequences:
        sequence = sequence if isinstance(sequence, Sequence) else Sequence(sequence)
        if _unlike(sequence.ids):
            raise TypeError(f"{type(sequence.ids).__name__} given as a sequence: {_EXPECTED}")
        ids = _tokens(sequence.ids)
        weights = None if sequence.weights is None else _array(ctypes.c_float, sequence.weights)
        if weights is not None and len(weights) != len(ids):
            raise ValueError(f"{len(ids)} tokens with {len(weights)} weights")
        kept += [ids, weights]
        rows.append(_Sequence(ctypes.cast(ids, _ids), ctypes.cast(weights, _floats), len(ids)))
    return _array(_Sequence, rows), len(rows), kept


def _taken(pointer):
    made = pointer.contents
    weights = made.weights[:made.count] if made.weights else None
    sequence = Sequence(made.ids[:made.count], weights)
    _lib.hone_sequence_destroy(pointer)
    return sequence


class _Raised:
    """A callback's exception, to be raised once the library has returned."""

    def __init__(self):
        self.error = None
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])        # of the thread as it was before the call

    def __call__(self, function, *arguments):
        held = None
        try:
            held = signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            return function(*arguments) or 0
        except BaseException as error:                  # pylint: disable=broad-except
            self.error = error
            return 1
        finally:
            if held is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def check(self, error):
        if self.error:
            raise self.error from None
        if error.status != _STOPPED:
            raise error


class _Options:
    def __init__(self, command, model, options):
        self.handle = _pointer()
        _call("hone_options_create", ctypes.byref(self.handle), command.encode())
        try:
            for key, value in {"model": model, **options}.items():
                if value is not None:
                    value = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
                    text = str(value).lower() if isinstance(value, bool) else str(value)
                    _call("hone_options_set", self.handle, _bytes(key, "the option"), _bytes(text, key))
        except (Error, ValueError):
            _lib.hone_options_destroy(self.handle)
            raise

    def __enter__(self):
        return self.handle

    def __exit__(self, *unused):
        _lib.hone_options_destroy(self.handle)


class _Text:
    """What needs only the tokenizer: of models, and of trainers through a model of their own."""
    _tokenizer = None

    def tokenize(self, text, special=False):
        """The ids of a text; special: with those that the tokenizer puts before and after it."""
        out, data = ctypes.POINTER(_Sequence)(), text.encode()
        _call("hone_tokenize", self._tokenizer, data, len(data), int(special), ctypes.byref(out))
        return _taken(out).ids

    def detokenize(self, ids, special=False):
        """The text of ids; special: special tokens are written too."""
        text, length, ids = _pointer(), ctypes.c_size_t(), _tokens(ids)
        _call("hone_detokenize", self._tokenizer, ids, len(ids), int(special), ctypes.byref(text), ctypes.byref(length))
        try:
            return ctypes.string_at(text, length.value).decode()
        finally:
            _lib.hone_text_destroy(text)

    def chat_template(self, messages, tools=None, prompt=False):
        """A Sequence by the model's template, with weight 1 where an answer is trained; prompt: it ends where an answer begins.
        Instead of messages, any row that `hone train` takes."""
        row = dict(messages) if isinstance(messages, dict) else {"messages": list(messages)}
        if tools is not None:
            row["tools"] = tools
        out = ctypes.POINTER(_Sequence)()
        _call("hone_encode_chat", self._tokenizer, json.dumps(row).encode(), int(prompt), ctypes.byref(out))
        return _taken(out)

    def _prompt(self, prompt):
        """Tokens from tokens, from messages, or from a user's message."""
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        prompt = prompt.ids if isinstance(prompt, Sequence) else list(prompt)
        return self.chat_template(prompt, prompt=True).ids if prompt and isinstance(prompt[0], dict) else prompt

    def _stop(self, token):
        """A token, or the text of one."""
        ids = self.tokenize(token) if isinstance(token, str) else [token]
        if len(ids) != 1:
            raise ValueError(f"stop: {token!r} is {len(ids)} tokens to this model, and one ends an answer; stream can end it by its text")
        return ids[0]

    def _sample(self, call, handle, prompt, stream, stop, settings):
        stop = [stop] if isinstance(stop, (str, int)) else stop
        ids, stops = _tokens(self._prompt(prompt)), _tokens(map(self._stop, stop))
        settings = {key: _whole(value, 64, key) for key, value in settings.items()}
        sampling = _Sampling(stop_tokens=ctypes.cast(stops, _ids), stop_count=len(stops), **settings)
        texts, tokens, logprobs, result, raised = [], [], [], _Generated(), _Raised()

        def take(_, token, logprob, text, length):
            texts.append(ctypes.string_at(text, length).decode())
            if token >= 0:
                tokens.append(token)
                logprobs.append(logprob)
            return bool(stream and texts[-1] and stream(texts[-1]))

        sink = _TokenSink(lambda *arguments: raised(take, *arguments))
        try:
            _call(call, handle, ids, len(ids), ctypes.byref(sampling), sink, None, ctypes.byref(result))
        except Error as error:
            raised.check(error)
        return Answer("".join(texts), tokens, logprobs, bool(result.ended))

    @staticmethod
    def _logprobs(call, handle, sequences):
        rows, count, kept = _sequences(sequences)
        lengths = [row.count for row in rows]
        out = (ctypes.c_float * max(1, sum(lengths)))()
        _call(call, handle, rows, count, out)
        del kept
        starts = [sum(lengths[:i]) for i in range(count)]
        return [list(out[start:start + length]) for start, length in zip(starts, lengths)]

    def close(self):
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __del__(self):
        self.close()


class Model(_Text):
    """A model to sample from, with an adapter or without. Options: those of `hone generate`."""

    def __init__(self, model, **options):
        self._handle = _pointer()
        with _Options("generate", model, options) as handle:
            _call("hone_model_open", ctypes.byref(self._handle), handle)
        self._tokenizer = self._handle

    def logprobs(self, sequences):
        """For each sequence the log-probability of each token after those before it; 0 for the first, and where a weight is 0."""
        return self._logprobs("hone_logprobs", self._handle, sequences)

    def sample(self, prompt, max_new_tokens=256, temperature=0, top_p=1, seed=0, stop=(), stream=None):
        """An Answer to a prompt: a user's message, a list of messages, or tokens. stop: tokens that end it besides the model's own,
        as numbers or texts. stream gets its text in pieces as it comes, and ends it by returning True."""
        return self._sample("hone_sample_tokens", self._handle, prompt, stream, stop,
                            dict(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, seed=seed))

    def close(self):
        handle, self._handle, self._tokenizer = getattr(self, "_handle", None), None, None
        if handle:
            _lib.hone_model_close(handle)


class Trainer(_Text):
    """A model with an adapter, an optimizer and, with the option data, the rows of a data set. Options: those of `hone train`."""

    def __init__(self, model, own_loss=None, sampling=True, logprobs=True, **options):
        """What is not to be used takes no memory: forward_backward with a loss of one's own (it excludes lora_dropout), sample,
        logprobs."""
        self._handle, self._tokenizer = _pointer(), _pointer()
        own_loss = not options.get("lora_dropout") if own_loss is None else own_loss
        ready_for = _LOGITS * bool(own_loss) | _SAMPLE * bool(sampling) | _LOGPROBS * bool(logprobs)
        with _Options("train", model, options) as handle:
            _call("hone_model_open", ctypes.byref(self._tokenizer), handle)
            _call("hone_trainer_open", ctypes.byref(self._handle), handle, ready_for)

    def forward_backward(self, sequences, loss=None):
        """Adds the gradients of the sequences' losses to those that the next optim_step applies. loss: a function of one's own,
        loss(sequence, first, logits, gradient) -> a number. logits[i] is a memoryview of the floats after token first + i of that
        sequence, one for each token of the vocabulary; the gradient with respect to them goes into gradient[i], which is all 0."""
        rows, count, kept = _sequences(sequences)
        result, raised = _Loss(), _Raised()

        def give(_, sequence, first, length, vocabulary, logits, gradient, total):
            def views(pointer):
                data = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float * (length * vocabulary))).contents
                whole = memoryview(data).cast("B").cast("f")
                return [whole[row * vocabulary:(row + 1) * vocabulary] for row in range(length)]
            given = views(logits), views(gradient)
            try:
                total[0] += loss(sequence, first, *given)
            finally:
                for view in (*given[0], *given[1]):
                    view.release()              # the library's memory is not theirs any longer

        if loss is None:
            _call("hone_trainer_forward_backward", self._handle, rows, count, ctypes.byref(result))
        else:
            try:
                _call("hone_trainer_forward_backward_with", self._handle, rows, count,
                      _Gradient(lambda *arguments: raised(give, *arguments)), None, ctypes.byref(result))
            except Error as error:
                raised.check(error)
        del kept
        return Loss(result.sum, result.weight, result.tokens)

    def optim_step(self, learning_rate=None):
        """Steps the optimizer with all that was added since the last step. None: the learning rate of the schedule."""
        result = _Step()
        _call("hone_trainer_optim_step", self._handle, -1 if learning_rate is None else learning_rate, ctypes.byref(result))
        return Step(*(getattr(result, name) for name in Step._fields[:-1]), bool(result.applied))

    def eval(self):
        """The mean loss over the validation data of the options."""
        loss = _real()
        _call("hone_trainer_eval", self._handle, ctypes.byref(loss))
        return loss.value

    def logprobs(self, sequences):
        """As Model.logprobs, with the model as it is now."""
        return self._logprobs("hone_trainer_logprobs", self._handle, sequences)

    def sample(self, prompt, max_new_tokens=256, temperature=0, top_p=1, seed=0, stop=(), stream=None):
        """As Model.sample, with the model as it is now; prompt and answer have the option sample_length's number of tokens at most."""
        return self._sample("hone_trainer_sample_tokens", self._handle, prompt, stream, stop,
                            dict(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, seed=seed))

    def save(self, folder):
        """The adapter in PEFT's layout, or the model in Hugging Face's."""
        _call("hone_trainer_save", self._handle, _bytes(folder, "folder"))

    def save_state(self, folder):
        """All that a trainer needs to resume as if it had not been interrupted. A state in the folder is replaced, with all that is
        next to it; a folder with files and no state is refused."""
        _call("hone_trainer_save_state", self._handle, _bytes(folder, "folder"))

    def load_state(self, folder):
        """Goes back to a state that save_state saved."""
        _call("hone_trainer_load_state", self._handle, _bytes(folder, "folder"))

    def close(self):
        handles = getattr(self, "_handle", None), getattr(self, "_tokenizer", None)
        self._handle = self._tokenizer = None
        if handles[0]:
            _lib.hone_trainer_close(handles[0])
        if handles[1]:
            _lib.hone_model_close(handles[1])
