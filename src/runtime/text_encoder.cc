#include "runtime/text_encoder.h"

#include <algorithm>

#include "base/assign.h"
#include "passes/module/specialise.h"
#include "passes/pack/pack_store.h"

namespace situ {
namespace {

// Programs are planned for a power of two of tokens from this on: longer texts plan anew.
constexpr int64_t kLeastPlanned = 64;

}  // namespace

// Texts of a step are all such, or none.
static bool by_tiles(const TextTokens& text) { return std::ssize(text.ids) >= kEncodedRows; }

// Only what the output needs; inputs that nothing reads are left out by bind_inputs.
Result<Graph> graph_for_texts(const ImportedModel& model, const std::string& output) {
  Graph graph = model.graph;
  for (const ValueId v : graph.outputs)
    if (graph.values[v].name == output) {
      slice(graph, {v});
      return graph;
    }
  return Status::error("the graph has no output '" + output + "'");
}

GraphUse use_for_texts(const std::string& output) {
  GraphUse use{Phase::kFirst, true, {}, {}};
  use.rows = output;
  use.texts = true;
  return use;
}

Result<std::unique_ptr<TextEncoder>> TextEncoder::create(const ImportedModel& model, const std::string& output,
                                                         const EngineOptions& options) {
  std::unique_ptr<TextEncoder> e(new TextEncoder());
  e->pool_ = options.pool;
  const std::vector<PackSource> sources = pack_sources(model);
  PackCache cache(*e->pool_, sources, {options.pack_cache ? pack_cache_folder() : std::filesystem::path()});
  PackStore packs(*e->pool_, &cache);
  if (options.dry) packs.set_dry();
  for (const PackSource& source : sources) packs.add_file(source.owner);
  const Result<Graph> graph = graph_for_texts(model, output);
  if (!graph.is_ok()) return graph.status();
  SITU_RETURN_IF_ERROR(assign(&e->compiled_, compile(*graph, options, &packs, use_for_texts(output))));
  if (std::optional<PackSave> save = cache.finish()) e->saver_.save(std::move(*save));
  const Value& rows = e->compiled_.graph.values[e->compiled_.binding.rows];
  const Shape& shape = rows.info.shape;
  Dim count(1);
  for (size_t i = 0; i + 1 < shape.size(); ++i) count = count * shape[i];
  e->by_token_ = count == Dim::symbol(kSymS);
  if (!dtype_is_float(rows.info.type) || shape.empty() || !shape.back().is_const() || shape.back().value() < 1 ||
      (!e->by_token_ && count != Dim(1)))
    return Status::error("output '" + output + "' " + dtype_name(rows.info.type) +
                         shape_str(shape, &e->compiled_.graph.symbol_names()) +
                         " is no row for each token, and none for the text: floats [1, tokens, width] or [1, width]");
  if (rows.producer < 0) return Status::error("output '" + output + "' is not computed");
  e->width_ = shape.back().value();
  e->chunk_ = std::max<int64_t>(1, options.chunk);
  e->batch_ = std::max<int64_t>(1, options.batch);
  e->executor_ = std::make_unique<Executor>(*e->pool_);
  if (const Status ready = e->prepare(kLeastPlanned); !ready.is_ok()) return ready;
  return e;
}

// Plan, memory and program for steps of so many tokens.
Status TextEncoder::prepare(int64_t tokens) {
  if (program_ && tokens <= planned_) return Status::ok();
  const int64_t planned = std::max(tokens, kLeastPlanned);
  Result<Plan> plan = make_plan(compiled_.graph, compiled_.binding, {planned, planned, planned, planned});
  if (!plan.is_ok()) return plan.status();
#ifndef NDEBUG
  SITU_RETURN_IF_ERROR(verify_plan(compiled_.graph, compiled_.binding, *plan, {3}));
#endif
  program_.reset();  // where anything fails from here on, the next text begins anew
  memory_ = {};
  rows_ = Tensor::allocate(compiled_.graph.values[compiled_.binding.rows].info.type, {by_token_ ? planned : 1, width_});
  plan_ = std::move(*plan);
  SITU_RETURN_IF_ERROR(assign(&memory_, ReservedMemory::of(plan_.arena_bytes + plan_.io_bytes + 64, "of activations"))
                           .with_context("a text of " + std::to_string(tokens) + " tokens"));
  const Regions regions{memory_.data(), memory_.data() + plan_.arena_bytes, nullptr};
  SITU_RETURN_IF_ERROR(assign(
      &program_, Program::create(compiled_.graph, compiled_.binding, plan_, compiled_.order, regions, *executor_)));
  planned_ = planned;
  return Status::ok();
}

Status TextEncoder::check(std::span<const TextTokens> texts) const {
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t tokens = std::ssize(texts[i].ids);
    if (tokens == 0) return Status::error(Code::kInvalidArgument, "text " + std::to_string(i + 1) + " has no tokens");
    if (tokens > most_tokens())
      return Status::error(Code::kContextExceeded, "text " + std::to_string(i + 1) + " has " + std::to_string(tokens) +
                                                       " tokens; the model takes at most " +
                                                       std::to_string(most_tokens()));
  }
  return Status::ok();
}

size_t TextEncoder::share_step(std::span<const TextTokens> texts, int64_t most) const {
  int64_t tokens = std::ssize(texts[0].ids);
  size_t count = 1;
  while (one_text().empty() && count < texts.size() && by_tiles(texts[count]) == by_tiles(texts[0]) &&
         static_cast<int64_t>(count) < batch_ && tokens + std::ssize(texts[count].ids) <= most)
    tokens += std::ssize(texts[count++].ids);
  return count;
}

// Texts of a step, side by side.
Status TextEncoder::begin_step(std::span<const TextTokens> texts) {
  segments_.clear();
  runs_.resize(texts.size());
  int64_t tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const TextTokens& text = texts[i];
    Segment& s = segments_.emplace_back();
    s.tokens = text.ids.data();
    s.types = text.types.empty() ? nullptr : text.types.data();
    s.count = std::ssize(text.ids);
    runs_[i] = {tokens, s.count};
    s.write_slot = tokens;
    s.runs = &runs_[i];
    s.run_count = 1;
    s.keys = s.count;
    s.source_rows = s.count;
    s.prompt = true;
    tokens += s.count;
  }
  int64_t planned = kLeastPlanned;
  while (planned < tokens) planned *= 2;
  SITU_RETURN_IF_ERROR(prepare(planned));
  input_ = StepInput{segments_};
  input_.wanted = tokens;
  input_.rows = rows_.view().data;
  input_.encodes = by_tiles(texts[0]);
  return program_->prepare(input_, ledger_);
}

Result<bool> TextEncoder::step(std::span<const TextTokens> texts, Clock::time_point until, const RowsOf& each) {
  if (!begun_) SITU_RETURN_IF_ERROR(begin_step(texts));
  begun_ = false;
  const Result<bool> done = program_->go_on(until, ledger_);
  begun_ = done.is_ok() && !*done;
  if (!done.is_ok() || !*done) return done;
  int64_t tokens = 0;
  for (const TextTokens& text : texts) tokens += std::ssize(text.ids);
  const float* at = rows_.view().as<const float>();
  if (rows_.type() != DType::kF32) {
    const Tensor made =
        Tensor::borrow(rows_.type(), {by_token_ ? tokens : 1, width_}, rows_.view().data, rows_.owner());
    const std::vector<double> wide = made.to_f64();
    floats_.assign(wide.begin(), wide.end());
    at = floats_.data();
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t numbers = static_cast<size_t>(width_) * (by_token_ ? texts[i].ids.size() : 1);
    SITU_RETURN_IF_ERROR(each(i, {at, numbers}));
    at += numbers;
  }
  return true;
}

}  // namespace situ
