// The module situ._situ: the C++ API as it is. The package situ (situ/model.py) gives it its face.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>

#include "cli/program.h"
#include "python/attended.h"
#include "python/embed.h"
#include "python/openai.h"
#include "python/options.h"
#include "python/prompt.h"
#include "python/results.h"
#include "python/session.h"
#include "python/speech.h"
#include "python/stream.h"
#include "situ/tools.h"
#include "situ/version.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace situ::python {
namespace {

using Handle = std::shared_ptr<ModelHandle>;
using Ids = std::vector<int64_t>;

PyObject* situ_error = nullptr;  // owned by the module

// A download that Python's signals end.
PullOptions pull_options_of(PullOptions options) {
  options.progress = [](int64_t, int64_t) {
    nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() == 0;
  };
  return options;
}

LoadOptions with_variants(LoadOptions options, const std::vector<std::string>& variants) {
  options.variants = variants;
  return options;
}

std::string pulled(const std::string& name, const std::vector<std::string>& variants, bool offline) {
  const Result<Pulled> found = [&] {
    const NoGil no_gil;
    return pull(name, pull_options_of({.offline = offline, .variants = variants}));
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return value_or_raise(Result<Pulled>(found)).path;
}

Handle load(const nb::bytes& path, const nb::dict& arguments) {
  const std::string file(static_cast<const char*>(path.data()), path.size());
  const LoadOptions options = load_options_of(arguments);
  Result<Model> model = [&]() -> Result<Model> {
    const NoGil no_gil;
    const Result<Pulled> found = pull(file, pull_options_of({.ask = false, .variants = options.variants}));
    if (found.is_ok()) return Model::load(found->path, with_variants(options, found->variants));
    if (found.status().code() != Code::kNotFound) return found.status();
    return Model::load(file, options);  // says what is wrong with a path
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return share(value_or_raise(std::move(model)));
}

nb::dict generate(const Handle& self, const Prompt& prompt, const nb::dict& arguments) {
  PythonStream stream(self, {prompt, options_of(arguments), false});
  return to_python(value_or_raise(stream.wait()));
}

// Token ids as Python gives them: whatever has integers in an order. TypeError: others. Lists and arrays are read
// without code of Python, in whose midst a thread would be killed as the program ends.
Ids ids_of(nb::handle given) {
  Ids ids;
  if (!nb::try_cast(given, ids)) ids = nb::cast<Ids>(nb::module_::import_("situ.prompts").attr("token_ids")(given));
  return ids;
}

nb::list generate_all(ModelHandle& self, const nb::list& given, const nb::dict& arguments) {
  std::vector<Prompt> prompts;
  for (const nb::handle prompt : given) prompts.push_back(nb::cast<const Prompt&>(prompt));
  const GenerateOptions options = options_of(arguments);
  Result<std::vector<Generation>> done =
      attended(self, [&](Model& model) { return model.generate(prompts, options, Model::BatchCallback()); });
  nb::list answers;
  for (const Generation& g : value_or_raise(std::move(done))) answers.append(to_python(g));
  return answers;
}

// The logits of several sessions after their tokens, [vocabulary] each, or why a session was refused.
nb::list step_all(const Handle& self, const std::vector<std::pair<PythonSession*, Ids>>& feeds) {
  std::vector<Model::Feed> sessions;
  LogitsRow::Rows rows;
  size_t count = 0;
  for (const auto& [session, tokens] : feeds) {
    if (session == nullptr) throw nb::type_error("step() wants pairs of a session and its tokens, not None");
    sessions.push_back({&session->session(), tokens});
    rows.push_back(session->row());
    count += tokens.size();
  }
  rows = LogitsRow::for_step(rows, self->vocabulary());
  const auto logits =
      value_or_raise(attended(*self, [&](Model& m) { return m.step(sessions, LogitsRow::place_of(rows)); }, count));
  nb::list arrays;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i].is_ok())
      arrays.append(nb::cast(feeds[i].first->show(*logits[i], rows[i])));
    else
      arrays.append(error_object(logits[i].status()));
  return arrays;
}

nb::dict perplexity(ModelHandle& self, const Ids& tokens, int64_t context, int64_t stride) {
  return to_python(value_or_raise(attended(self, [&](Model& m) { return m.perplexity(tokens, {context, stride}); })));
}

std::unique_ptr<PythonStream> stream(const Handle& self, const Prompt& prompt, const nb::dict& arguments) {
  return std::make_unique<PythonStream>(self, Request{prompt, options_of(arguments), true});
}

nb::object to_object(const std::optional<Event>& token) { return token ? to_python(*token) : nb::object(nb::none()); }

nb::object result(PythonStream& self) {
  const std::optional<Result<Generation>> result = self.result();
  if (!result) return nb::none();
  return to_python(value_or_raise(*result));
}

// A request may hold them longer than Python does, and let them go without its lock.
struct PythonWakeups {
  std::shared_ptr<Wakeups> shared = std::make_shared<Wakeups>();
};

// The error that ended an answer which had tokens before; None: none did.
nb::object failure(PythonStream& self) {
  const std::optional<Result<Generation>> result = self.result();
  if (!result || !result->is_ok() || (*result)->finish_reason != FinishReason::kError) return nb::none();
  return error_object(Status::error((*result)->error_code, (*result)->error));
}

nb::dict stats_to_python(const Stats& s) {
  nb::dict d;
  d["running"] = s.running;
  d["waiting"] = s.waiting;
  d["steps"] = s.steps;
  d["rows"] = s.rows;
  d["prompt_tokens"] = s.prompt_tokens;
  d["cached_tokens"] = s.cached_tokens;
  d["answer_tokens"] = s.answer_tokens;
  d["preemptions"] = s.preemptions;
  d["slots"] = s.slots;
  d["slots_free"] = s.slots_free;
  d["slots_kept"] = s.slots_kept;
  d["bytes_copied"] = s.bytes_copied;
  d["steps_alone"] = s.steps_alone;
  return d;
}

// All of these may be called while others generate.
void bind_tokenizer(nb::class_<ModelHandle>& model) {
  const auto tokenizer = [](ModelHandle& self) -> const Tokenizer& { return self.model().tokenizer(); };
  model.def_prop_ro("has_tokenizer", [=](ModelHandle& self) { return tokenizer(self).is_there(); })
      .def_prop_ro("has_chat_template", [=](ModelHandle& self) { return tokenizer(self).has_chat_template(); })
      .def_prop_ro("end_ids", [=](ModelHandle& self) { return tokenizer(self).end_ids(); })
      .def(
          "id_of", [=](ModelHandle& self, const std::string& token) { return tokenizer(self).id_of(token); }, "token"_a)
      .def(
          "token_of",
          [=](ModelHandle& self, int64_t id) -> nb::object {
            const std::optional<std::string> token = tokenizer(self).token_of(id);
            return token ? nb::object(nb::bytes(token->data(), token->size())) : nb::object(nb::none());
          },
          "id"_a, nb::sig("def token_of(self, id: int) -> bytes | None"))
      .def(
          "encode",
          [](ModelHandle& self, const std::string& text, bool add_special, bool parse_special) {
            return value_or_raise(
                self.apart([&](Model& m) { return m.tokenizer().encode(text, add_special, parse_special); }));
          },
          "text"_a, "add_special"_a, "parse_special"_a)
      .def(
          "decode",
          [](ModelHandle& self, const Ids& ids, bool skip_special) {
            return value_or_raise(self.apart([&](Model& m) { return m.tokenizer().decode(ids, skip_special); }));
          },
          "ids"_a, "skip_special"_a)
      .def(
          "render",
          [](ModelHandle& self, const nb::dict& given) {
            const auto conversation = conversation_of(given);
            return value_or_raise(
                self.apart([&](Model& m) { return m.tokenizer().render(conversation.first, conversation.second); }));
          },
          "conversation"_a, nb::sig("def render(self, conversation: dict[str, typing.Any]) -> str"))
      .def(
          "encode_translation",
          [](ModelHandle& self, const std::string& text, const std::string& source, const std::string& target) {
            const Tokenizer::Translation t = value_or_raise(
                self.apart([&](Model& m) { return m.tokenizer().encode_translation(text, source, target); }));
            return nb::make_tuple(t.ids, t.forced_bos_id);
          },
          "text"_a, "source_language"_a, "target_language"_a);
}

void bind_model(nb::module_& m) {
  nb::class_<ModelHandle> model(m, "Model", "The C++ model. situ.Model is what to use.");
  bind_embed(model);
  bind_prompt(model, m);
  bind_tokenizer(model);
  model
      .def("generate", &generate, "prompt"_a, "options"_a,
           nb::sig("def generate(self, prompt: Prompt, options: dict[str, object]) -> dict[str, typing.Any]"))
      .def("generate_all", &generate_all, "prompts"_a, "options"_a,
           nb::sig("def generate_all(self, prompts: list[Prompt], options: dict[str, object]) -> "
                   "list[dict[str, typing.Any]]"))
      .def("step", &step_all, "feeds"_a,
           nb::sig("def step(self, feeds: Sequence[tuple[Session, Sequence[int]]]) -> "
                   "list[typing.Annotated[numpy.typing.NDArray[numpy.float32], dict(shape=(None,), order='C', "
                   "writable=False)] | SituError]"))
      .def("stream", &stream, "prompt"_a, "options"_a,
           nb::sig("def stream(self, prompt: Prompt, options: dict[str, object]) -> TokenStream"))
      .def("perplexity", &perplexity, "tokens"_a, "context"_a, "stride"_a,
           nb::sig("def perplexity(self, tokens: Sequence[int], context: int, stride: int) -> dict[str, typing.Any]"))
      .def("session",
           [](const Handle& self) {
             return std::make_unique<PythonSession>(
                 self, value_or_raise(self->apart([](Model& m) { return m.new_session(); })));
           })
      .def(
          "ledger", [](ModelHandle& self) { return to_python(self.apart([](Model& m) { return m.ledger(); })); },
          nb::sig("def ledger(self) -> tuple[int, int, int]"))
      .def(
          "stats",
          [](ModelHandle& self) {
            const Stats s = self.apart([](Model& m) { return m.stats(); });
            return stats_to_python(s);
          },
          nb::sig("def stats(self) -> dict[str, int]"))
      .def("reset_ledger", [](ModelHandle& self) { self.apart([](Model& m) { m.reset_ledger(); }); })
      .def(
          "facts", [](ModelHandle& self) { return to_python(self.apart([](Model& m) { return m.facts(); })); },
          nb::sig("def facts(self) -> dict[str, typing.Any]"));
}

void bind_session(nb::module_& m) {
  nb::class_<PythonSession>(
      m, "Session", nb::is_weak_referenceable(),
      "One sequence of tokens and its state; situ.Model.session() makes it. It keeps its model alive.\n\n"
      "Sessions of one model may live side by side and take turns.")
      .def(
          "step", [](PythonSession& self, nb::handle tokens) { return self.step(ids_of(tokens)); }, "tokens"_a,
          nb::sig(
              "def step(self, tokens: Sequence[int] | numpy.typing.NDArray[numpy.integer[typing.Any]]) -> "
              "typing.Annotated[numpy.typing.NDArray[numpy.float32], dict(shape=(None,), order='C', writable=False)]"),
          "Feeds token ids, each in [0, vocabulary), and returns the logits after the last one.\n\n"
          "The array, float32 [vocabulary], is a read-only view of the memory that the model computes them in: "
          "nothing is\n"
          "copied, unless the graph computes half precision or the logits of all tokens; the ledger says so. It holds "
          "these\n"
          "logits until the next step of the same session, whatever other sessions, streams and threads do; then it "
          "may show\n"
          "those of that step. Copy it (numpy.array(logits)) to keep it. It may outlive session and model.\n\n"
          "Raises SituError: an id out of range, the context length exceeded, no token, no room. The session is then "
          "as "
          "it was,\n"
          "or empty where the beginning of what it was has left the window.")
      .def("rewind", &PythonSession::rewind, "length"_a,
           "Drops the last tokens, so that `length` are left. Raises SituError: more than there are; tokens that the "
           "next one\n"
           "would attend to have left the window; into the middle of a step whose tokens depend on how many they are "
           "(a long\n"
           "rope); naive mode, which cannot.")
      .def("fork", &PythonSession::fork,
           "One more session that goes on from here, over the same state: nothing is copied. Raises SituError: a "
           "recurrent\n"
           "state, which one session alone can have.")
      .def_prop_ro("length", &PythonSession::length, "How many tokens it holds.")
      .def_prop_ro(
          "logits_address", [](PythonSession& self) { return reinterpret_cast<uintptr_t>(self.logits()); },
          "Where C++ has the logits of the last step, 0 before one: the address of the array's first element.");
}

void bind_stream(nb::module_& m) {
  nb::class_<PythonWakeups>(m, "Wakeups", "The numbers of streams that have something to poll for.")
      .def(nb::init<>())
      .def("descriptor", [](const PythonWakeups& self) { return self.shared->descriptor(); })
      .def("take", [](const PythonWakeups& self) { return self.shared->take(); });
  nb::class_<PythonStream>(m, "TokenStream", "The C++ side of situ.Stream.")
      .def(
          "next", [](PythonStream& self) { return to_object(self.next()); },
          nb::sig("def next(self) -> tuple[int, str, float | None, list[tuple[int, float]], int] | None"))
      .def(
          "poll", [](PythonStream& self) { return to_object(self.poll()); },
          nb::sig("def poll(self) -> tuple[int, str, float | None, list[tuple[int, float]], int] | None"))
      .def("ended", &PythonStream::ended)
      .def("waits", &PythonStream::waits)
      .def(
          "notify",
          [](PythonStream& self, const PythonWakeups* wakeups, uint64_t number) {
            self.notify(wakeups ? wakeups->shared : nullptr, number);
          },
          "wakeups"_a.none(), "number"_a)
      .def("result", &result, nb::sig("def result(self) -> dict[str, typing.Any] | None"))
      .def("failure", &failure, nb::sig("def failure(self) -> SituError | None"))
      .def("close", &PythonStream::close);
}

int run_program(const std::vector<nb::bytes>& arguments) {
  std::vector<std::string> texts;
  for (const nb::bytes& argument : arguments) texts.emplace_back(argument.c_str(), argument.size());
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  nb::gil_scoped_release free;
  return cli::run_program(static_cast<int>(texts.size()), pointers.data());
}

}  // namespace

nb::object error_text(const std::string& message) {
  nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "surrogateescape"));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

nb::object error_object(const Status& error) {
  nb::object object = nb::handle(situ_error)(error_text(error.message()));
  object.attr("code") = code_name(error.code());
  return object;
}

void raise_error(const std::string& message, Code code) {
  PyErr_SetObject(situ_error, error_object(Status::error(code, message)).ptr());
  throw nb::python_error();
}

NB_MODULE(_situ, m) {
  m.doc() = "The C++ API of Situ, bound as it is. The package situ is what to use.";
  const std::string name = nb::cast<std::string>(m.attr("__name__")) + ".SituError";
  situ_error = PyErr_NewExceptionWithDoc(
      name.c_str(),
      "An error of Situ. The message is one line that names the file, the node and the values. `code`: "
      "invalid_argument, not_found, unsupported_model, bad_file, context_exceeded, no_room, interrupted or internal.",
      PyExc_RuntimeError, nullptr);
  if (!situ_error) throw nb::python_error();
  m.attr("SituError") = nb::handle(situ_error);
  m.attr("SituError").attr("code") = code_name(Code::kInvalidArgument);  // of those that are raised in Python
  m.attr("__version__") = version();
  nb::set_leak_warnings(false);  // threads that sleep for ever as the program ends (NoGil) hold what they had
  bind_model(m);
  bind_session(m);
  bind_stream(m);
  bind_openai(m);
  bind_speech(m);
  m.def("load", &load, "path"_a, "options"_a, nb::sig("def load(path: bytes, options: dict[str, object]) -> Model"));
  m.def("run_program", &run_program, "arguments"_a, nb::sig("def run_program(arguments: list[bytes]) -> int"),
        "The program `situ` with these arguments, its own name first; it sets the signals of the process.");
  m.def("end_program", &end_program, "Ends what computes, as the program ends.");
  m.def("pull", &pulled, "name"_a, "variants"_a, "offline"_a,
        nb::sig("def pull(name: str, variants: list[str], offline: bool) -> str"));
  m.def("option_names", &option_names, nb::sig("def option_names() -> list[str]"),
        "The names of the options of generate.");
  m.def("load_option_names", &load_option_names, nb::sig("def load_option_names() -> list[str]"),
        "The names of the options of load.");
  m.def("peak_rss_mib", &peak_rss_mib, "Highest resident set of this process so far, MiB.");
}

}  // namespace situ::python
