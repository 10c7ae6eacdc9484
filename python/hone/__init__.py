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
what to do. Messages go to the logger "hone". A Model is used by one thread at a time; a Trainer and its Slots by any, whose calls wait
for each other. The interpreter's lock is released while the library computes. Signals wait until a call has returned, or a function that it calls begins: so Ctrl-C ends an answer that is
streamed. The functions are those of hone.h, which says the rest.
"""
import array
import collections
import contextlib
import ctypes
import json
import logging
import os
import pathlib
import signal
import threading
import weakref

__all__ = ["Error", "Model", "Trainer", "Slot", "Sequence", "Datum", "Answer", "Loss", "Step", "version"]

_int, _real, _pointer, _text = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p, ctypes.c_char_p
_ids, _floats, _bits = map(ctypes.POINTER, (ctypes.c_int32, ctypes.c_float, ctypes.c_uint8))


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


class _Datum(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("ids", _ids), ("count", _int), ("targets", _ids), ("weights", _floats), ("mask", _bits),
                ("old_logprobs", _floats), ("advantages", _floats)]


class _Uses(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("samples", ctypes.c_int), ("logits", ctypes.c_int), ("logprobs", ctypes.c_int),
                ("base_logprobs", ctypes.c_int), ("losses", ctypes.POINTER(_text)), ("loss_count", _int)]


class _Setting(ctypes.Structure):
    _fields_ = [("name", _text), ("value", _real), ("text", _text)]


class _LossChoice(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("name", _text), ("settings", ctypes.POINTER(_Setting)), ("count", _int)]


class _Optim(_Sized):
    _fields_ = [("size", ctypes.c_size_t), *((name, _real) for name in ("learning_rate", "beta1", "beta2", "epsilon", "weight_decay",
                                                                       "max_grad_norm", "divisor"))]


class _Sampling(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("max_new_tokens", _int), ("temperature", _real), ("top_k", _int), ("top_p", _real),
                ("min_p", _real), ("repetition_penalty", _real), ("presence_penalty", _real), ("frequency_penalty", _real),
                ("bias_tokens", _ids), ("biases", _floats), ("bias_count", _int), ("seed", _int), ("stop_tokens", _ids),
                ("stop_count", _int), ("stop_texts", ctypes.POINTER(_text)), ("stop_text_count", _int), ("logprobs", _int),
                ("prompt_logprobs", _int)]


class _Token(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("id", ctypes.c_int32), ("of_prompt", ctypes.c_int32), ("logprob", _real),
                ("text", _pointer), ("length", ctypes.c_size_t), ("top_ids", _ids), ("top_logprobs", ctypes.POINTER(_real)),
                ("top_count", _int)]


class _Generated(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("prompt_tokens", _int), ("new_tokens", _int), ("ended", ctypes.c_int),
                ("startup_seconds", _real), ("prefill_seconds", _real), ("decode_seconds", _real), ("reused_tokens", _int)]


class _Loss(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("sum", _real), ("weight", _real), ("tokens", _int)]


class _Step(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("step", _int), ("epoch", _real), ("loss", _real), ("grad_norm", _real),
                ("learning_rate", _real), ("tokens", _int), ("trained_tokens", _int), ("seconds", _real), ("applied", ctypes.c_int)]


class _SlotStart(_Sized):
    _fields_ = [("size", ctypes.c_size_t), ("seed", ctypes.POINTER(_int)), ("adapter", _text)]


class _SlotInfo(_Sized):
    _fields_ = [("size", ctypes.c_size_t), *((name, _int) for name in (
        "slot", "slots", "seed", "step", "tokens", "waiting", "host_bytes", "disk_bytes", "slot_bytes", "gradient_bytes")),
        ("selected", ctypes.c_int), ("reserved", ctypes.c_int)]


_TokenSink = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, ctypes.POINTER(_Token))
_Gradient = ctypes.CFUNCTYPE(ctypes.c_int, _pointer, _int, _int, _int, _int, _floats, _floats, ctypes.POINTER(_real))
_data, _arrays = ctypes.POINTER(ctypes.POINTER(_Datum)), ctypes.POINTER(_floats)

# Every function that returns a status, by its arguments.
_CALLS = {
    "hone_options_create": [ctypes.POINTER(_pointer), _text],
    "hone_options_set": [_pointer, _text, _text],
    "hone_model_open": [ctypes.POINTER(_pointer), _pointer],
    "hone_tokenize": [_pointer, _text, ctypes.c_size_t, ctypes.c_uint, ctypes.POINTER(ctypes.POINTER(_Sequence))],
    "hone_detokenize": [_pointer, _ids, _int, ctypes.c_uint, ctypes.POINTER(_pointer), ctypes.POINTER(ctypes.c_size_t)],
    "hone_encode_chat": [_pointer, _text, ctypes.c_uint, ctypes.POINTER(ctypes.POINTER(_Sequence))],
    "hone_logprobs": [_pointer, _data, _int, _arrays],
    "hone_sample_tokens": [_pointer, _ids, _int, ctypes.POINTER(_Sampling), _TokenSink, _pointer, ctypes.POINTER(_Generated)],
    "hone_trainer_open": [ctypes.POINTER(_pointer), _pointer, ctypes.POINTER(_Uses)],
    "hone_trainer_forward_backward": [_pointer, _data, _int, ctypes.POINTER(_LossChoice), _arrays, ctypes.POINTER(_Loss)],
    "hone_trainer_forward_backward_with": [_pointer, _data, _int, _Gradient, _pointer, ctypes.POINTER(_Loss)],
    "hone_trainer_optim_defaults": [_pointer, ctypes.POINTER(_Optim)],
    "hone_trainer_clear_gradients": [_pointer],
    "hone_trainer_optim_step": [_pointer, ctypes.POINTER(_Optim), ctypes.POINTER(_Step)],
    "hone_trainer_tensors": [_pointer, ctypes.POINTER(_pointer)],
    "hone_trainer_read_tensor": [_pointer, _text, ctypes.c_int, _floats, ctypes.POINTER(_int)],
    "hone_trainer_eval": [_pointer, ctypes.POINTER(_real)],
    "hone_trainer_logprobs": [_pointer, _data, _int, ctypes.c_uint, _arrays],
    "hone_trainer_sample_tokens": [_pointer, _ids, _int, ctypes.POINTER(_Sampling), _TokenSink, _pointer, ctypes.POINTER(_Generated)],
    "hone_trainer_save": [_pointer, _text],
    "hone_trainer_save_state": [_pointer, _text],
    "hone_trainer_load_state": [_pointer, _text],
    "hone_trainer_slot_create": [_pointer, ctypes.POINTER(_SlotStart), ctypes.POINTER(_int)],
    "hone_trainer_slot_load": [_pointer, _text, ctypes.POINTER(_int)],
    "hone_trainer_slot_select": [_pointer, _int],
    "hone_trainer_slot_evict": [_pointer, _int, _text],
    "hone_trainer_slot_close": [_pointer, _int],
    "hone_trainer_slot_get_info": [_pointer, _int, ctypes.POINTER(_SlotInfo)],
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
_LOGPROBS_BASE = 1


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
Datum = collections.namedtuple("Datum", "ids targets weights mask old_logprobs advantages", defaults=[None] * 5)
Datum.__doc__ = """A Sequence with all that a loss may read. Element i of each list is about ids[i], predicted from those before it.
targets: what is predicted in place of the ids. weights: of each token's loss, also below 0; None: 1. mask: whether a token is asked
about; None: each is whose weight is not 0. old_logprobs (at temperature 1 and top_p 1, as all of this library), advantages: of ppo,
gspo and sapo."""
Answer = collections.namedtuple("Answer", "text ids logprobs ended top_logprobs prompt_logprobs prompt_top_logprobs")
Answer.__doc__ = """Its text, its tokens with their log-probabilities, and whether the model or a stop ended it. If they were asked for: for
each token {id: log-probability} of the most likely ones, and both of the prompt's tokens, where None is for the first."""
Loss = collections.namedtuple("Loss", "sum weight tokens logprobs")
Loss.__doc__ = """The sum of weighted losses and the sum of weights: sum / weight is the mean. logprobs: of each datum's tokens, if
they were asked for."""
Step = collections.namedtuple("Step", "step epoch loss grad_norm learning_rate tokens trained_tokens seconds applied")
SlotInfo = collections.namedtuple("SlotInfo", [name for name, _ in _SlotInfo._fields_[1:-1]])
SlotInfo.__doc__ = "Of a slot: its number, how many the trainer has, its seed, where it stands, and what it takes (hone_slot_info)."
Step.__doc__ = "An optimizer step; applied is False if its loss or gradient was not finite, and nothing was changed."


_EXPECTED = "a list of sequences is expected, each a hone.Datum, a hone.Sequence, as chat_template makes it, or a list of token ids"


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


def _utf8(text, what):
    """A text for C as the model's tokenizer has it."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} {text!r}: {error}") from None
    if b"\0" in data:
        raise ValueError(f"{what} {text!r}: it has a zero byte")
    return data


def _unlike(values):
    """What is no list, or one only by accident."""
    return isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__")


def _datum(given, kept):
    """A sequence of any kind as the library has it, and in `kept` what must live as long as it."""
    given = given if isinstance(given, Datum) else Datum(given.ids, weights=given.weights) if isinstance(given, Sequence) else Datum(given)
    if _unlike(given.ids):
        raise TypeError(f"{type(given.ids).__name__} given as a sequence: {_EXPECTED}")
    arrays = {"ids": _tokens(given.ids)}
    for name in Datum._fields[1:]:
        values = getattr(given, name)
        if values is not None:
            arrays[name] = (_tokens(values) if name == "targets" else _array(ctypes.c_uint8, map(bool, values)) if name == "mask"
                            else _array(ctypes.c_float, values))
            if len(arrays[name]) != len(arrays["ids"]):
                raise ValueError(f"{len(arrays['ids'])} tokens with {len(arrays[name])} {name}")
    kept += arrays.values()
    types = dict(_Datum._fields_)
    return _Datum(count=len(arrays["ids"]), **{name: ctypes.cast(values, types[name]) for name, values in arrays.items()})


def _all_data(data):
    """An array for the library, the lengths of its data, and what must live as long as it."""
    data = [data] if isinstance(data, (Sequence, Datum)) else data
    if _unlike(data):
        raise TypeError(f"{type(data).__name__} given: {_EXPECTED}")
    kept = []
    made = [_datum(each, kept) for each in data]
    return _array(ctypes.POINTER(_Datum), map(ctypes.pointer, made)), [each.count for each in made], (kept, made)


def _room(lengths):
    """Arrays of floats for the library to fill."""
    arrays = [(ctypes.c_float * max(1, length))() for length in lengths]
    return arrays, _array(_floats, (ctypes.cast(values, _floats) for values in arrays))


def _filled(arrays, lengths):
    return [values[:length] for values, length in zip(arrays, lengths)]


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


class _Lock:
    """A threading.RLock that a forked process has afresh: a thread that held it is not there."""
    _all = weakref.WeakSet()

    def __init__(self):
        self._entered = []
        self.renew()
        self._all.add(self)

    def renew(self):
        self._lock = threading.RLock()

    def __enter__(self):
        lock = self._lock
        lock.acquire()
        self._entered.append(lock)

    def __exit__(self, *unused):
        self._entered.pop().release()


os.register_at_fork(after_in_child=lambda: [lock.renew() for lock in _Lock._all])


class _Text:
    """What needs only the tokenizer: of models, and of trainers and slots through a model of their own, under a lock of its own."""
    _tokenizer = None

    def __init__(self):
        self._reading = _Lock()

    def _read(self, name, *arguments):
        with self._reading:
            _call(name, self._tokenizer, *arguments)

    def tokenize(self, text, special=False):
        """The ids of a text; special: with those that the tokenizer puts before and after it."""
        out, data = ctypes.POINTER(_Sequence)(), text.encode()
        self._read("hone_tokenize", data, len(data), int(special), ctypes.byref(out))
        return _taken(out).ids

    def detokenize(self, ids, special=False):
        """The text of ids; special: special tokens are written too."""
        text, length, ids = _pointer(), ctypes.c_size_t(), _tokens(ids)
        self._read("hone_detokenize", ids, len(ids), int(special), ctypes.byref(text), ctypes.byref(length))
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
        self._read("hone_encode_chat", json.dumps(row).encode(), int(prompt), ctypes.byref(out))
        return _taken(out)

    def _prompt(self, prompt):
        """Tokens from tokens, from messages, or from a user's message."""
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        prompt = prompt.ids if isinstance(prompt, Sequence) else list(prompt)
        return self.chat_template(prompt, prompt=True).ids if prompt and isinstance(prompt[0], dict) else prompt

    def _turn(self):
        """A context in which a call is made, with the handle that it is made with. All that the call is given is there before."""
        raise NotImplementedError

    def _sample(self, call, prompt, max_new_tokens=256, temperature=0, top_p=1, seed=0, stop=(), stream=None, *, top_k=0, min_p=0,
                repetition_penalty=1, presence_penalty=0, frequency_penalty=0, logit_bias=None, logprobs=0, prompt_logprobs=0):
        stop, bias = list([stop] if isinstance(stop, (str, int, bytes)) else stop), dict(logit_bias or {})
        for each in (prompt, *stop):
            if isinstance(each, bytes):
                raise TypeError(f"{each!r} is bytes: give a text, or numbers of tokens")
        ids, stops = _tokens(self._prompt(prompt)), _tokens(each for each in stop if not isinstance(each, str))
        texts = _array(_text, (_utf8(each, "the stop text") for each in stop if isinstance(each, str)))
        biased, biases = _tokens(bias), _array(ctypes.c_float, bias.values())
        settings = dict(max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                        repetition_penalty=repetition_penalty, presence_penalty=presence_penalty, frequency_penalty=frequency_penalty,
                        seed=seed, logprobs=logprobs, prompt_logprobs=prompt_logprobs)
        sampling = _Sampling(bias_tokens=biased, biases=biases, bias_count=len(biased), stop_tokens=stops, stop_count=len(stops),
                             stop_texts=texts, stop_text_count=len(texts), **{key: _whole(value, 64, key) for key, value in settings.items()})
        said, heard, result, raised = [], {False: ([], [], []), True: ([], [], [])}, _Generated(), _Raised()

        def take(_, given):
            token = given.contents
            said.append(ctypes.string_at(token.text, token.length).decode())
            if token.id >= 0:
                first = token.of_prompt and not heard[True][0]
                kept = token.id, None if first else token.logprob, dict(zip(token.top_ids[:token.top_count],
                                                                            token.top_logprobs[:token.top_count]))
                for each, value in zip(heard[bool(token.of_prompt)], kept):
                    each.append(value)
            return bool(stream and said[-1] and stream(said[-1]))

        sink = _TokenSink(lambda *arguments: raised(take, *arguments))
        try:
            with self._turn() as handle:
                _call(call, handle, ids, len(ids), ctypes.byref(sampling), sink, None, ctypes.byref(result))
        except Error as error:
            raised.check(error)
        (tokens, scores, top), (_, prompt_scores, prompt_top) = heard[False], heard[True]
        return Answer("".join(said), tokens, scores, bool(result.ended), top if logprobs else None,
                      *(prompt_scores, prompt_top) if prompt_logprobs else (None, None))

    def _logprobs(self, call, data, *flags):
        rows, lengths, kept = _all_data(data)
        arrays, room = _room(lengths)
        with self._turn() as handle:
            _call(call, handle, rows, len(lengths), *flags, room)
        del kept
        return _filled(arrays, lengths)

    def close(self):
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


class Model(_Text):
    """A model to sample from, with an adapter or without. Options: those of `hone generate`."""

    def __init__(self, model, **options):
        super().__init__()
        self._handle = _pointer()
        with _Options("generate", model, options) as handle:
            _call("hone_model_open", ctypes.byref(self._handle), handle)
        self._tokenizer = self._handle

    @contextlib.contextmanager
    def _turn(self):
        yield self._handle

    def logprobs(self, data):
        """For each sequence the log-probability of each token after those before it; 0 for the first, and where a weight is 0."""
        return self._logprobs("hone_logprobs", data)

    def sample(self, prompt, max_new_tokens=256, temperature=0, top_p=1, seed=0, stop=(), stream=None, **settings):
        """An Answer to a prompt: a user's message, a list of messages, or tokens. stop: tokens and texts that end it besides the
        model's own tokens. stream gets its text in pieces as it comes, and ends it by returning True. settings: top_k, min_p,
        repetition_penalty, presence_penalty, frequency_penalty, logit_bias, which is {id: number}, and of how many of the most likely
        tokens the Answer has log-probabilities: logprobs, prompt_logprobs (hone_sampling says more)."""
        return self._sample("hone_sample_tokens", prompt, max_new_tokens, temperature, top_p, seed, stop, stream, **settings)

    def close(self):
        handle, self._handle, self._tokenizer = getattr(self, "_handle", None), None, None
        if handle:
            _lib.hone_model_close(handle)

    def __del__(self):
        self.close()


class _Trained(_Text):
    """What a trainer does with its own adapter, and a slot with another one."""

    def forward_backward(self, data, loss="cross_entropy", logprobs=False, **settings):
        """Adds the gradients of the data's losses to those that the next optim_step applies. loss: the name of one of the trainer's
        losses, with its settings (docs/library.md); logprobs: whether the Loss gets those of the model as it is. Or a function of one's
        own, loss(datum, first, logits, gradient) -> a number. logits[i] is a memoryview of the floats after token first + i of that
        datum, one for each token of the vocabulary; the gradient with respect to them goes into gradient[i], which is all 0."""
        rows, lengths, kept = _all_data(data)
        result, raised = _Loss(), _Raised()
        if callable(loss):
            if settings or logprobs:
                raise TypeError("a loss of one's own has no settings, and no log-probabilities that the library knows")
            self._own_loss(loss, rows, len(lengths), result, raised)
            del kept
            return Loss(result.sum, result.weight, result.tokens, None)
        arrays, room = _room(lengths) if logprobs else ([], None)
        pairs = _array(_Setting, (_Setting(_bytes(name, "the setting"), value) for name, value in settings.items()))
        choice = _LossChoice(name=_bytes(loss, "the loss"), settings=pairs, count=len(pairs))
        with self._turn() as handle:
            _call("hone_trainer_forward_backward", handle, rows, len(lengths), ctypes.byref(choice), room, ctypes.byref(result))
        del kept
        return Loss(result.sum, result.weight, result.tokens, _filled(arrays, lengths) if logprobs else None)

    def _own_loss(self, loss, rows, count, result, raised):
        def give(_, datum, first, length, vocabulary, logits, gradient, total):
            # Copies: what a loss keeps of its arguments may live longer than the library's memory.
            numbers = ctypes.c_float * (length * vocabulary)
            seen, made = numbers.from_buffer_copy(ctypes.cast(logits, ctypes.POINTER(numbers)).contents), numbers()

            def views(data):
                whole = memoryview(data).cast("B").cast("f")
                return [whole[row * vocabulary:(row + 1) * vocabulary] for row in range(length)]
            total[0] += loss(datum, first, views(seen), views(made))
            ctypes.memmove(gradient, made, ctypes.sizeof(made))

        call = _Gradient(lambda *arguments: raised(give, *arguments))
        try:
            with self._turn() as handle:
                _call("hone_trainer_forward_backward_with", handle, rows, count, call, None, ctypes.byref(result))
        except Error as error:
            raised.check(error)

    def optim_step(self, learning_rate=None, *, beta1=None, beta2=None, epsilon=None, weight_decay=None, max_grad_norm=None, divisor=None):
        """Steps the optimizer with all that was added since the last step, divided by a number: 1 for example. None: the sum of the
        weights, of which none may be below 0; of the others the options' values, and the schedule's learning rate."""
        result, optim = _Step(), _Optim()
        given = dict(learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon, weight_decay=weight_decay,
                     max_grad_norm=max_grad_norm, divisor=divisor)
        given = {name: _real(value).value for name, value in given.items() if value is not None}
        with self._turn() as handle:
            _call("hone_trainer_optim_defaults", handle, ctypes.byref(optim))
            for name, value in given.items():
                setattr(optim, name, value)
            _call("hone_trainer_optim_step", handle, ctypes.byref(optim), ctypes.byref(result))
        return Step(*(getattr(result, name) for name in Step._fields[:-1]), bool(result.applied))

    def clear_gradients(self):
        """Discards what was added since the last step."""
        with self._turn() as handle:
            _call("hone_trainer_clear_gradients", handle)

    def tensors(self):
        """What is trained: {name: shape}, with the names of PEFT's files for an adapter, else the model's."""
        text = _pointer()
        with self._turn() as handle:
            _call("hone_trainer_tensors", handle, ctypes.byref(text))
        try:
            return {row["name"]: tuple(row["shape"]) for row in json.loads(ctypes.string_at(text))}
        finally:
            _lib.hone_text_destroy(text)

    def read_tensor(self, name, gradient=False):
        """An array("f") of a trained tensor's weights, or of the sums of its gradients since the last step."""
        count, name, kind = _int(), _bytes(name, "the tensor"), int(gradient)
        with self._turn() as handle:
            _call("hone_trainer_read_tensor", handle, name, kind, None, ctypes.byref(count))
            values = array.array("f", bytes(4 * count.value))
            _call("hone_trainer_read_tensor", handle, name, kind, ctypes.cast(values.buffer_info()[0], _floats), ctypes.byref(count))
        return values

    def eval(self):
        """The mean loss over the validation data of the options."""
        loss = _real()
        with self._turn() as handle:
            _call("hone_trainer_eval", handle, ctypes.byref(loss))
        return loss.value

    def logprobs(self, data, base=False):
        """As Model.logprobs, with the model as it is now; base: without its adapter."""
        return self._logprobs("hone_trainer_logprobs", data, _LOGPROBS_BASE * bool(base))

    def sample(self, prompt, max_new_tokens=256, temperature=0, top_p=1, seed=0, stop=(), stream=None, **settings):
        """As Model.sample, with the model as it is now; prompt and answer have the option sample_length's number of tokens at most."""
        return self._sample("hone_trainer_sample_tokens", prompt, max_new_tokens, temperature, top_p, seed, stop, stream, **settings)

    def _with_folder(self, name, folder):
        path = _bytes(folder, "folder")
        with self._turn() as handle:
            _call(name, handle, path)

    def save(self, folder):
        """The adapter in PEFT's layout, or the model in Hugging Face's."""
        self._with_folder("hone_trainer_save", folder)

    def save_state(self, folder):
        """All that a trainer needs to resume as if it had not been interrupted. A state in the folder is replaced, with all that is
        next to it; a folder with files and no state is refused."""
        self._with_folder("hone_trainer_save_state", folder)

    def load_state(self, folder):
        """Goes back to a state that save_state saved, here or in another trainer with the same base, adapter, optimizer and dropout."""
        self._with_folder("hone_trainer_load_state", folder)


class Trainer(_Trained):
    """A model with an adapter, an optimizer and, with the option data, the rows of a data set. Options: those of `hone train`."""

    def __init__(self, model, own_loss=None, sampling=True, logprobs=True, base_logprobs=False, losses=("cross_entropy",), **options):
        """What is not to be used takes no memory: forward_backward with a loss of one's own (it excludes lora_dropout), sample,
        logprobs, logprobs(base=True), and each of the losses that forward_backward is given by name."""
        super().__init__()
        self._handle, self._tokenizer = _pointer(), _pointer()
        self._lock = _Lock()                            # around a selection and the calls that it is for
        self._dropped = collections.deque()             # the numbers of slots that nobody has any more
        own_loss = not options.get("lora_dropout") if own_loss is None else own_loss
        names = _array(_text, (_bytes(name, "the loss") for name in ([losses] if isinstance(losses, str) else losses)))
        uses = _Uses(samples=bool(sampling), logits=bool(own_loss), logprobs=bool(logprobs), base_logprobs=bool(base_logprobs),
                     losses=names, loss_count=len(names))
        with _Options("train", model, options) as handle:
            _call("hone_model_open", ctypes.byref(self._tokenizer), handle)
            _call("hone_trainer_open", ctypes.byref(self._handle), handle, ctypes.byref(uses))

    @contextlib.contextmanager
    def _calls(self, number=None):
        """While no other thread calls: the handle, with this slot selected unless that is None. A callback's own thread comes in, and
        the library refuses its call."""
        with self._lock:
            if number is not None:
                _call("hone_trainer_slot_select", self._handle, number)
            while self._dropped:
                _call("hone_trainer_slot_close", self._handle, self._dropped[0])
                self._dropped.popleft()
            yield self._handle

    def _turn(self):
        return self._calls(0)

    def slot(self, seed=None, adapter=None):
        """A new Slot: a further adapter in this trainer, with a seed of its own (None: the trainer's). adapter: a folder in PEFT's
        layout, with the trainer's ranks, scales and modules, whose weights it begins with."""
        start = _SlotStart(seed=None if seed is None else ctypes.pointer(_int(_whole(seed, 64, "seed"))),
                           adapter=None if adapter is None else _bytes(adapter, "adapter"))
        return Slot(self, "create", ctypes.byref(start))

    def load_slot(self, folder):
        """A new Slot from what save_state saved of one, with its seed."""
        return Slot(self, "load", _bytes(folder, "folder"))

    def close(self):
        with self._lock, self._reading:
            self._close()

    def _close(self):
        handles = getattr(self, "_handle", None), getattr(self, "_tokenizer", None)
        self._handle = self._tokenizer = None
        if handles[0]:
            _lib.hone_trainer_close(handles[0])
        if handles[1]:
            _lib.hone_model_close(handles[1])

    def __del__(self):
        self._close()                                   # nobody is in a call: who is has the trainer


class Slot(_Trained):
    """A further adapter in a trainer, with its own optimizer state, gradients, steps and seed. Each call, of a slot or of the trainer,
    first selects what it is for, which copies two slots if another was selected. All slots share the trainer's one handle: threads
    may use different ones, but their calls wait for each other, and a callback cannot use another one."""

    def __init__(self, trainer, how, argument):         # pylint: disable=super-init-not-called
        self._trainer, self._number, number = trainer, None, _int()
        with trainer._calls() as handle:
            _call(f"hone_trainer_slot_{how}", handle, argument, ctypes.byref(number))
            self._number = number.value

    _tokenizer = property(lambda self: self._trainer._tokenizer)
    _reading = property(lambda self: self._trainer._reading)

    def _turn(self):
        return self._trainer._calls(self._open())

    def select(self):
        """Copies this slot to the device, and the one that was there to host memory."""
        with self._turn():
            pass

    def evict(self, folder):
        """Moves this slot to a file without a name in a folder, until it is used again."""
        path = _bytes(folder, "folder")
        with self._trainer._calls() as handle:
            _call("hone_trainer_slot_evict", handle, self._open(), path)

    def info(self):
        """A SlotInfo."""
        info = _SlotInfo()
        with self._trainer._calls() as handle:
            _call("hone_trainer_slot_get_info", handle, self._open(), ctypes.byref(info))
        return SlotInfo(*(getattr(info, name) for name in SlotInfo._fields[:-1]), bool(info.selected))

    def _open(self):
        if self._number is None:
            raise Error(_ARGUMENT, "this slot is closed: make another")
        return self._number

    def close(self):
        trainer = self._trainer
        with trainer._lock:
            if self._number is not None and trainer._handle:
                with trainer._calls() as handle:
                    _call("hone_trainer_slot_close", handle, self._number)
            self._number = None

    def __del__(self):
        if getattr(self, "_number", None) is not None:
            self._trainer._dropped.append(self._number)     # closed before the trainer's next call, whose thread may be another
