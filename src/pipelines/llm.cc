#include "pipelines/llm.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/assign.h"
#include "base/clock.h"
#include "base/lfs_pointer.h"
#include "base/out_of_memory.h"
#include "base/reasons.h"
#include "onnx/share_initialisers.h"
#include "passes/module/embedding_merge.h"
#include "passes/module/embeddings.h"
#include "passes/module/float_activations.h"
#include "passes/module/named_operator.h"
#include "passes/states/find_states.h"
#include "passes/window/fixed_window.h"
#include "pipelines/declared.h"
#include "pipelines/embedder.h"
#include "pipelines/other_variants.h"
#include "pipelines/read_prompt.h"
#include "pipelines/sampling.h"
#include "pipelines/start.h"
#include "requests/draft.h"
#include "requests/session_decoding.h"
#include "text/stop.h"

namespace situ {
namespace {

constexpr int64_t kMaxContext = int64_t{1} << 24;  // where float positions end
constexpr int64_t kMostSlots = int64_t{1} << 30;   // so that counts made of them stay within 64 bits

// A folder without a tokenizer takes ids. That it has one which was not downloaded is worth a note.
Status load_texts(Model::Impl& m) {
  SITU_TAKE(texts, load_tokenizer(m.folder.folder));
  m.texts = std::move(texts);
  m.public_tokenizer = Internals::tokenizer(m.texts);
  m.tokenizer = m.texts->text();
  m.folder.no_tokenizer = m.texts->missing;
  m.texts->end_ids.insert(m.texts->end_ids.begin(), m.folder.eos_ids.begin(), m.folder.eos_ids.end());
  std::vector<int64_t> seen;
  std::erase_if(m.texts->end_ids, [&](int64_t id) {
    const bool twice = std::find(seen.begin(), seen.end(), id) != seen.end();
    seen.push_back(id);
    return twice;
  });
  if (m.folder.no_tokenizer.ends_with(kLfsPointer))
    m.folder.notes.push_back(m.folder.no_tokenizer + "; ids are taken without it");
  return Status::ok();
}

bool wrong_window(const LoadOptions& options) {
  return std::min(options.window, options.sink) < 0 || std::max(options.window, options.sink) > kMaxContext;
}

// `declared`: tokens of a context that nobody asks for.
Status load_engine(Model::Impl& m, const LoadOptions& options, int64_t declared) {
  EngineOptions engine;
  engine.names = m.folder.names;
  engine.context_length = options.context_length > 0 || options.window > 0 ? m.context_length : 0;
  engine.declared_context = declared;
  set_source_length(m, &engine);
  engine.memory = options.memory;
  engine.slots = options.slots;
  engine.chunk = options.chunk;
  engine.window = options.window;
  engine.first = options.sink;
  engine.pool = Internals::of(*m.runtime).pool;
  engine.pack_cache = options.pack_cache && !m.purpose.dry;
  engine.dry = m.purpose.dry;
  engine.float_activations = m.purpose.float_activations;
  engine.traces = m.purpose.traces;
  constexpr DType kTypes[] = {DType::kNone, DType::kF32, DType::kF16, DType::kBF16, DType::kI8};
  engine.kv_type = kTypes[static_cast<size_t>(options.kv_type)];
  const std::string slots = std::to_string(options.slots), window = std::to_string(options.window),
                    sink = std::to_string(options.sink), most = std::to_string(kMostSlots);
  const bool naive = options.naive, has_window = options.window > 0, encoder = m.files.encoder.has_value(),
             media = !m.files.media.empty();
  const std::pair<bool, std::string> refused[] = {
      {naive && engine.kv_type != DType::kNone,
       "kv_type is for placed programs; the naive mode keeps states as the file has them"},
      {naive && options.memory > 0, "a memory is for placed programs; the naive mode allocates what it needs"},
      {options.slots < 0 || options.slots > kMostSlots,
       "a state of " + slots + " slots; from 1 to " + most + " is possible"},
      {naive && options.slots > 0, "slots are for placed programs; the naive mode has none"},
      {wrong_window(options), "a window of " + window + " tokens, and the first " + sink},
      {options.sink > 0 && !has_window, "the first " + sink + " tokens are kept beside a window only"},
      {naive && has_window, "a window is for placed programs; the naive mode keeps the whole past"},
      {encoder && has_window, "no window: a decoder with an encoder keeps its whole past"},
      {media && has_window, "no window: a decoder with encoders of pictures or sounds keeps its whole past"},
      {(encoder || media) && !options.draft.empty(),
       "no draft: answers of a model with an encoder follow its source, which a draft does not see"},
      {options.memory < 0, "a memory of " + std::to_string(options.memory) + " bytes"}};
  for (const auto& [is_refused, why] : refused)
    if (is_refused) return Status::error(Code::kInvalidArgument, why);
  if (options.naive) {
    SITU_RETURN_IF_ERROR(assign(&m.naive, NaiveEngine::create(m.files, engine)));
  } else {
    SITU_RETURN_IF_ERROR(assign(&m.in_place, InPlaceEngine::create(m.files, engine)));
  }
  const Compiled& c = m.compiled();
  const Shape& logits = c.graph.values[c.binding.logits].info.shape;
  const Value& value = c.graph.values[c.binding.logits];
  if (!dtype_is_float(value.info.type) || value.producer < 0)
    return Status::error("output '" + value.name + "' " + dtype_name(value.info.type) + shape_str(logits) +
                         (value.producer < 0 ? " is not computed" : " cannot be logits: they are floats"));
  if (logits.empty() || !logits.back().is_const() || logits.back().value() <= 0)
    return Status::error("output '" + c.graph.values[c.binding.logits].name + "' " + shape_str(logits) +
                         " is not [.., vocabulary]");
  SymbolValues step;
  step[kSymS] = 3;
  if (logits.size() > 2 && logits[0].eval(step) != 1)
    return Status::error("output '" + value.name + "' " + shape_str(logits) + " has logits of " + logits[0].str() +
                         " sequences; a step computes one");
  m.vocabulary = logits.back().value();
  if (m.files.encoder) m.source_vocabulary = rows_of_tokens(m.files.encoder->graph);
  return Status::ok();
}

// What the graphs hold is the context where nobody asks for another one, whatever the configuration declares. Where
// that declares none, kDefaultContext may be more than there is memory for.
Status load_with_context(Model::Impl& m, const LoadOptions& options) {
  constexpr int64_t kLeastContext = 32;
  Status status = load_engine(m, options, m.folder.context_length);
  const bool open = options.context_length == 0 && options.window == 0 && m.folder.context_length == 0;
  for (int64_t most = kDefaultContext / 2;
       open && !status.is_ok() && !holds_for_any_step(status) && most >= kLeastContext; most /= 2)
    status = load_engine(m, options, most);
  SITU_RETURN_IF_ERROR(status);
  m.context_length = m.in_place ? m.in_place->context() : m.naive->context();
  const std::string& bound = m.in_place ? m.in_place->shortest().bound : m.naive->shortest().bound;
  if (!bound.empty() && m.folder.context_length > m.context_length)
    m.folder.notes.push_back("the context is " + std::to_string(m.context_length) + " tokens, not the " +
                             std::to_string(m.folder.context_length) + " that are declared: " + bound);
  note_what_is_lost(m, options);
  return Status::ok();
}

// Of an export whose extents are all fixed the context is the number of its keys, whatever the model was made for.
Status bound_by_window(Model::Impl& m, const LoadOptions& options) {
  const Result<std::optional<FixedWindow>> window = find_fixed_window(m.files.decoder.graph, m.folder.names);
  // What is wrong with either is said where it is bound.
  if (!window.is_ok() || !*window || wrong_window(options)) return Status::ok();
  const int64_t length = (*window)->length;
  for (const auto& [what, tokens] : {std::pair<const char*, int64_t>{"a context", options.context_length},
                                     {"a window", options.window + options.sink}})
    if (tokens > length)
      return Status::error(std::string(what) + " of " + std::to_string(tokens) +
                           " tokens is more than this export has keys: its attention mask is [1, " +
                           std::to_string(length) + "]");
  m.folder.context_length = length;
  if (options.context_length == 0) m.context_length = length;
  return Status::ok();
}

// Calls f(graph, name of its file) for each of the files.
template <typename F>
void each_graph(ModelFiles& files, F f) {
  f(files.decoder.graph, files.decoder_name);
  if (files.encoder) f(files.encoder->graph, files.encoder_name);
  if (files.first) f(files.first->graph, files.first_name);
  if (files.lookup) f(files.lookup->graph, files.lookup_name);
  for (MediaEncoder& media : files.media) f(media.model.graph, media.name);
}

// `refused`, which operators of one graph are, with those of all graphs: a user exports all of them anew.
Status with_all_operators(const Status& refused, ModelFiles& files) {
  if (!holds_for_any_step(refused)) return refused;
  const auto told = [&](const Reason& r) {
    return std::any_of(refused.reasons().begin(), refused.reasons().end(), [&](const Reason& known) {
      return known.op == r.op && known.domain == r.domain && known.detail == r.detail;
    });
  };
  ReasonList all;
  std::string text = refused.message();
  each_graph(files, [&](Graph& graph, const std::string& name) {
    const Status operators = resolve_ops(graph, NodesOf::kFile).with_context(name);
    for (const Reason& r : operators.reasons()) all.add(r);
    if (!std::all_of(operators.reasons().begin(), operators.reasons().end(), told)) text += "; " + operators.message();
  });
  for (const Reason& r : refused.reasons())
    if (r.kind == Reason::Kind::kOpset || all.empty()) all.add(r);
  return Status::error(refused.code(), text).because(all.reasons());
}

// A decoder that has no past fails in many ways, of its mask mostly: why is said too.
Status with_missing_past(const Status& refused, const ModelFiles& files) {
  const Graph& graph = files.decoder.graph;
  const bool has_past = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
    return !graph.values[v].info.ranked || graph.values[v].info.shape.size() > 2;
  });
  const bool told = std::any_of(refused.reasons().begin(), refused.reasons().end(),
                                [](const Reason& r) { return r.kind != Reason::Kind::kShape; });
  if (refused.is_ok() || has_past || files.first || files.encoder || told) return refused;
  Reasons reasons = no_past().reasons();
  reasons.insert(reasons.end(), refused.reasons().begin(), refused.reasons().end());
  return Status::error(refused.code(), no_past().message() + "; " + refused.message()).because(std::move(reasons));
}

// One file after the other, whatever is wrong with one of them.
class FileImport {
 public:
  explicit FileImport(Model::Impl& m) : m_(m) {}

  Status run() {
    import(m_.folder.model_file, &m_.files.decoder_name, &m_.files.decoder);
    // A decoder of any number of tokens needs no first call beside it.
    if (m_.folder.first_is_optional() && !fixed_tokens(m_.files.decoder.graph, m_.folder.names))
      m_.folder.first_file.clear();
    for (const auto& [file, model, name] :
         {std::tuple{&m_.folder.encoder_file, &m_.files.encoder, &m_.files.encoder_name},
          {&m_.folder.first_file, &m_.files.first, &m_.files.first_name},
          {&m_.folder.lookup_file, &m_.files.lookup, &m_.files.lookup_name}})
      if (!file->empty()) import(*file, name, &model->emplace());
    for (const MediaFile& media : m_.folder.media_files) {
      MediaEncoder& encoder = m_.files.media.emplace_back();
      import(media.file, &encoder.name, &encoder.model);
      encoder.sound = media.sound;
      encoder.token = media.sound ? m_.folder.media.audio : m_.folder.media.image;
    }
    if (!refused_.empty()) return refused_.status();
    return changed_.empty() ? Status::ok() : with_all_operators(changed_.status(), m_.files);
  }

 private:
  void import(const std::filesystem::path& file, std::string* name, ImportedModel* model) {
    *name = file.filename().string();
    Status changed;
    Result<ImportedModel> imported = import_onnx(file, &changed, is_operator);
    refused_.add(imported.status(), Reason::Kind::kFile);
    changed_.add(changed, Reason::Kind::kOpset);
    if (imported.is_ok()) *model = std::move(*imported);
  }

  Model::Impl& m_;
  ReasonList refused_, changed_;  // files; operators of later opsets
};

Status import_files(Model::Impl& m) {
  SITU_RETURN_IF_ERROR(FileImport(m).run());
  if (m.purpose.float_activations)
    each_graph(m.files, [](Graph& graph, const std::string&) { float_activations(&graph); });
  m.files.spatial_merge = m.folder.media.spatial_merge;
  m.files.vision_start = m.folder.media.vision_start;
  if (m.files.lookup) {
    std::vector<int64_t> tokens;
    for (const MediaEncoder& encoder : m.files.media)
      if (encoder.token >= 0) tokens.push_back(encoder.token);
    ThreadPool one(1);
    Evaluator evaluator(one, Evaluator::kMaxProbeBytes);
    SITU_RETURN_IF_ERROR(take_out_merge(m.files.lookup->graph, tokens, evaluator).with_context(m.files.lookup_name));
    m.folder.names.rows = m.files.decoder.graph.values[std::max(0, embeddings_input(m.files.decoder.graph))].name;
    SITU_RETURN_IF_ERROR(
        join_embeddings(m.files.decoder.graph, m.files.decoder_name, m.files.lookup->graph, m.files.lookup_name));
    m.files.lookup->graph = Graph();
  }
  std::vector<ImportedModel*> models;
  for (MediaEncoder& encoder : m.files.media) models.push_back(&encoder.model);
  if (m.files.encoder) models.push_back(&*m.files.encoder);
  models.push_back(&m.files.decoder);
  if (m.files.first) models.push_back(&*m.files.first);
  share_initialisers(models);
  if (!m.files.first) return Status::ok();
  if (const std::string name = different_parameter(*m.files.first, m.files.decoder); !name.empty())
    return Status::error(Code::kBadFile, m.files.first_name + " and " + m.files.decoder_name +
                                             " are not of one decoder: initialiser '" + name +
                                             "' has other numbers in each");
  return Status::ok();
}

}  // namespace

// What getrusage says would be that of the program that started this one, if it was larger.
double peak_rss_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::strtod(line.c_str() + 6, nullptr) / 1024.0;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

bool Model::Impl::encoder_takes_ids() const {
  return in_place ? in_place->encoder() && in_place->encoder()->takes_ids() : naive->encoder_takes_ids();
}

bool Model::Impl::is_for_speech() const {
  if (!has_encoder() || encoder_takes_ids() || !files.encoder || !text()) return false;
  const Graph& graph = files.encoder->graph;
  return std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
    const ValueInfo& info = graph.value(v).info;
    return info.ranked && info.shape.size() == 3 && info.shape[1].is_const() &&
           (info.shape[1].value() == 80 || info.shape[1].value() == 128);
  });
}

Status Model::Impl::check_source(std::span<const int64_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || (source_vocabulary > 0 && ids[i] >= source_vocabulary))
      return Status::error(Code::kInvalidArgument, folder.encoder_file.string() + ": token " + std::to_string(i) +
                                                       " has id " + std::to_string(ids[i]) +
                                                       ", outside the vocabulary of " +
                                                       std::to_string(source_vocabulary));
  return Status::ok();
}

Status Model::Impl::check_session(std::span<const Model::Feed> feeds, size_t i) const {
  const auto wrong = [&](const char* kind, const char* what) {
    return Status::error(Code::kInvalidArgument,
                         folder.model_file.string() + ": " + kind + " " + std::to_string(i) + " " + what);
  };
  const Session* session = feeds[i].session;
  if (!session) return wrong("feed", "has no session");
  if (session->impl_->model.get() != this) return wrong("session", "is of another model");
  for (size_t j = 0; j < i; ++j)
    if (feeds[j].session == session) return wrong("session", "is in the step twice");
  return Status::ok();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;
int64_t Session::length() const { return impl_->strand().length(); }

static Status check_room(const Model::Impl& model, std::span<float> logits, size_t rows) {
  const size_t wanted = rows * static_cast<size_t>(model.vocabulary);
  if (logits.empty() || logits.size() == wanted) return Status::ok();
  return Status::error(Code::kInvalidArgument,
                       model.folder.model_file.string() + ": room for " + std::to_string(logits.size()) +
                           " logits, for " + std::to_string(wanted) + " of " + std::to_string(rows) + " sessions");
}

// Computed where the caller wants them, or in the place of the first session, which keeps it: other requests take steps
// meanwhile.
Result<std::vector<Model::Logits>> Model::step(std::span<const Feed> feeds, std::span<float> logits) const {
  return impl_->step_sessions(feeds, logits);
}

Result<std::vector<Model::Logits>> Model::Impl::step_sessions(std::span<const Model::Feed> feeds,
                                                              std::span<float> logits, const std::string& client) {
  return or_out_of_memory([&]() -> Result<std::vector<Model::Logits>> {
    SITU_RETURN_IF_ERROR(check_room(*this, logits, feeds.size()));
    std::vector<Model::Logits> rows;
    std::vector<SessionStep::Part> good;
    std::vector<size_t> number;  // of each, among all
    for (size_t i = 0; i < feeds.size(); ++i) {
      Status status = check_session(feeds, i);
      if (status.is_ok())  // before places are given out: those of the others stay side by side
        status = check(feeds[i].tokens, impl_of(*feeds[i].session).strand().length()).with_context(file);
      rows.push_back(status.is_ok() ? Model::Logits(std::span<const float>()) : Model::Logits(status));
      if (!status.is_ok()) continue;
      good.push_back({&impl_of(*feeds[i].session).strand(), feeds[i].tokens});
      number.push_back(i);
    }
    if (good.empty()) return rows;
    if (logits.empty()) {
      std::vector<float>& place = impl_of(*feeds[number[0]].session).logits;
      place.resize(good.size() * static_cast<size_t>(vocabulary));
      logits = place;
    }
    const std::shared_ptr<Job> job = scheduler->submit_part(
        std::make_unique<SessionStep>(*this, std::move(good), logits.data()), {.follows_flag = true, .client = client});
    SITU_RETURN_IF_ERROR(wait_for(job).status());
    good = static_cast<SessionStep&>(*job->decoding).take_parts();
    for (size_t i = 0; i < good.size(); ++i)
      rows[number[i]] =
          good[i].refused.is_ok() ? Model::Logits(good[i].logits) : Model::Logits(std::move(good[i].refused));
    return rows;
  });
}

Result<std::span<const float>> Session::step(std::span<const int64_t> tokens, std::span<float> logits) {
  const Model::Feed feed{this, tokens};
  Result<std::vector<Model::Logits>> rows = impl_->model->step_sessions({&feed, 1}, logits);
  return rows.is_ok() ? std::move((*rows)[0]) : rows.status();
}

Status Session::rewind(int64_t length) {
  Strand& strand = impl_->strand();
  if (!strand.sequence) return Status::error(Code::kInvalidArgument, "the naive mode cannot rewind");
  if (length < 0 || length > strand.length())
    return Status::error(Code::kInvalidArgument, "cannot rewind a sequence of " + std::to_string(strand.length()) +
                                                     " tokens to " + std::to_string(length));
  return impl_->model->between_steps([&] {
    SITU_RETURN_IF_ERROR(impl_->model->in_place->can_rewind(*strand.sequence, length));
    strand.rewind(length);
    return Status::ok();
  });
}

Result<Session> Session::fork() const {
  return or_out_of_memory([&]() -> Result<Session> {
    Result<Session> other = impl_->model->new_session();
    if (!other.is_ok()) return other;
    const Status forked = impl_->model->between_steps([&] {
      return or_out_of_memory([&] {
        other->impl_->strand() = impl_->strand().fork();
        return Status::ok();
      });
    });
    return forked.is_ok() ? std::move(other) : forked;
  });
}

Result<Session> Model::Impl::new_session() {
  SITU_RETURN_IF_ERROR(check_generates());
  return Session(std::make_unique<Session::Impl>(shared_from_this()));
}

Result<Generation> Model::Impl::wait_for(std::unique_ptr<Decoding> decoding, const std::string& client) const {
  return wait_for(scheduler->submit_part(std::move(decoding), {.follows_flag = true, .client = client}));
}

// Whoever asks a server may be gone meanwhile.
Result<Generation> Model::Impl::wait_for(const std::shared_ptr<Job>& job) const {
  constexpr std::chrono::milliseconds kLook{20};
  while (!job->wait(kLook))
    if (StopOfThread::asked()) job->cancel();
  return job->result();
}

Result<Model> Model::load(const std::string& path, const LoadOptions& options) { return load_model(path, options, {}); }

Result<Model> Model::load(const std::string& path, const LoadOptions& options, const Runtime& runtime) {
  return load_model(path, options, {}, &runtime);
}

// `path`: of errors.
static Result<Model> load_folder(const std::string& path, const ModelFolder& folder, const LoadOptions& options,
                                 const LoadPurpose& purpose, const Runtime& runtime) {
  const Clock::time_point start = Clock::now();
  auto impl = std::make_shared<Model::Impl>();
  impl->purpose = purpose;
  impl->runtime = runtime;
  impl->folder = folder;
  impl->file = impl->folder.model_file.string();
  impl->where = impl->folder.folder.string();
  if (const char* error = select_isa_error(); error && *error) return Status::error(Code::kInvalidArgument, error);
  SITU_RETURN_IF_ERROR(import_files(*impl).or_code(Code::kBadFile).or_reason(Reason::Kind::kFile));
  impl->context_length = options.context_length > 0        ? options.context_length
                         : impl->folder.context_length > 0 ? impl->folder.context_length
                                                           : kDefaultContext;
  SITU_RETURN_IF_ERROR(bound_by_window(*impl, options).or_code(Code::kInvalidArgument).with_context(impl->file));
  if (options.context_length < 0)
    return Status::error(Code::kInvalidArgument,
                         path + ": a context of " + std::to_string(options.context_length) + " tokens");
  if (options.chunk < 1)
    return Status::error(Code::kInvalidArgument, path + ": steps of " + std::to_string(options.chunk) + " tokens");
  if (options.window > 0 && options.context_length == 0) impl->context_length = kMaxContext;
  if (impl->context_length > kMaxContext)
    return Status::error(Code::kInvalidArgument, path + ": a context of " + std::to_string(impl->context_length) +
                                                     " tokens is more than " + std::to_string(kMaxContext));
  // Before what takes long.
  SITU_RETURN_IF_ERROR(load_texts(*impl).or_code(Code::kBadFile).or_reason(Reason::Kind::kFile));
  impl->loaded = options;
  if (is_for_embeddings(impl->folder, impl->files.decoder.graph)) {
    SITU_RETURN_IF_ERROR(with_all_operators(impl->load_embedder(), impl->files));
    Internals::of(*impl->runtime).scheduler.add(*impl);
    impl->load_ms = ms_since(start);
    return Internals::model(std::move(impl));
  }
  if (!options.draft.empty())
    if (const Result<ModelFolder> draft = open_model_folder(options.draft); !draft.is_ok())
      return draft.status().or_code(Code::kBadFile).with_context("the draft");
  if (const Status loaded = load_with_context(*impl, options).or_code(Code::kUnsupportedModel); !loaded.is_ok()) {
    // A sparse encoder, say, which gives logits of tokens: it is not meant as a language model.
    if (const Status modules = read_sentence_files(impl->folder.modules).status(); !modules.is_ok())
      return modules.or_code(Code::kBadFile).or_reason(Reason::Kind::kFile);
    std::error_code error;
    const bool by_file = !std::filesystem::is_directory(path, error);
    const std::string others = other_variants(impl->folder, impl->files, options.variants, by_file);
    const Status told = with_missing_past(with_all_operators(loaded, impl->files), impl->files);
    return Status::error(loaded.code(), told.message() + (others.empty() ? "" : "; " + others))
        .because(told.reasons())
        .with_context(impl->folder.model_file.string());
  }
  if (!options.draft.empty()) {
    LoadOptions small;
    small.chunk = options.chunk;
    small.window = options.window;
    small.sink = options.sink;
    small.pack_cache = options.pack_cache;
    Result<Model> draft = load_model(options.draft, small, {}, &runtime);
    if (!draft.is_ok()) return draft.status().with_context("the draft");
    SITU_RETURN_IF_ERROR(check_draft(*impl, impl_of(*draft)).or_code(Code::kInvalidArgument));
    impl->draft_model = std::make_unique<Model>(std::move(*draft));
    impl->draft = &impl_of(*impl->draft_model);
  }
  Internals::of(*impl->runtime).scheduler.add(*impl);
  impl->load_ms = ms_since(start);
  return Internals::model(std::move(impl));
}

Result<Model> load_model(const std::string& path, const LoadOptions& options, const LoadPurpose& purpose,
                         const Runtime* given) {
  const Result<Runtime> runtime = given ? Result<Runtime>(*given) : Runtime::shared(options.threads);
  if (!runtime.is_ok()) return runtime.status().with_context(path);
  Result<ModelFolder> folder = open_model_folder(path, options.variants);
  if (!folder.is_ok()) return folder.status().or_code(Code::kBadFile).or_reason(Reason::Kind::kFile);
  Result<Model> both = load_folder(path, *folder, options, purpose, *runtime);
  if (both.is_ok() || !folder->first_is_optional()) return both;
  const std::string first = std::exchange(folder->first_file, {}).filename().string();
  folder->notes.push_back(first + " is not used, and " + folder->model_file.filename().string() +
                          " takes prompts: " + both.status().message());
  return load_folder(path, *folder, options, purpose, *runtime);
}

Result<Session> Model::new_session() const {
  return or_out_of_memory([&] { return impl_->new_session(); });
}

Result<Session> Model::new_session(const Prompt& prompt) const {
  return or_out_of_memory([&]() -> Result<Session> {
    if (!impl_->has_encoder() && !impl_->takes_media())
      return Status::error(Code::kInvalidArgument,
                           impl_->folder.model_file.string() + ": the model has no encoder, and sessions no source");
    SITU_TAKE(read, read_prompt(*impl_, prompt));
    SITU_TAKE(start, start_of(*impl_, read));
    Result<Session> session = impl_->new_session();
    if (!session.is_ok()) return session;
    const std::shared_ptr<Job> job = impl_->scheduler->submit_part(
        std::make_unique<SessionOpening>(*impl_, std::move(start)), {.follows_flag = true});
    SITU_RETURN_IF_ERROR(impl_->wait_for(job).status());
    session->impl_->strand() = static_cast<SessionOpening&>(*job->decoding).take_strand();
    return session;
  });
}

bool Model::has_encoder() const { return impl_->has_encoder(); }
bool Model::takes_arrays() const { return impl_->has_encoder() || impl_->takes_media(); }

void Model::interrupt_when(const std::atomic<bool>* flag) const {
  impl_->interrupt = flag;
  if (impl_->texts->loaded) impl_->texts->loaded->interrupt_when(flag);
}

CallsOfThread::CallsOfThread(std::shared_ptr<const std::atomic<bool>> flag)
    : former_(std::exchange(thread_flag(), std::move(flag))) {}
CallsOfThread::~CallsOfThread() { thread_flag() = std::move(former_); }

const Tokenizer& Model::tokenizer() const { return *impl_->public_tokenizer; }

Result<Prompt> Model::read(Prompt prompt) const { return read_prompt(*impl_, std::move(prompt)); }

}  // namespace situ
