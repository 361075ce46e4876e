#include "runtime/source_writer.h"

#include <sys/mman.h>

#include <algorithm>

namespace situ {
namespace {

// Programs for so many different extents are kept: a picture's size is seldom another one each time.
constexpr size_t kMostEntries = 8;

}  // namespace

Result<std::unique_ptr<SourceWriter>> SourceWriter::create(const ModelFiles& files, const EngineOptions& options,
                                                           const Compiled& decoder, PackStore& packs,
                                                           ThreadPool& pool) {
  std::unique_ptr<SourceWriter> w(new SourceWriter(files, options, decoder, pool));
  const Graph& graph = w->encoder();
  w->takes_ids_ = encoder_takes_ids(graph);
  w->most_rows_ = source_length_of(options);
  w->counted_rows_ = options.counted_source;
  if (takes_open_arrays(graph)) return w;
  Extents extents;
  for (const ValueId v : graph.inputs) {
    const ValueInfo& info = graph.values[v].info;
    if (!dtype_is_float(info.type)) continue;
    std::vector<int64_t> dims{1};
    for (size_t i = 1; i < info.shape.size(); ++i) dims.push_back(info.shape[i].value());
    extents[graph.values[v].name] = dims;
  }
  SITU_RETURN_IF_ERROR(w->compile_for(extents, packs));
  return w;
}

SourceWriter::~SourceWriter() {
  for (const auto& e : entries_)
    if (e->io) munmap(e->io, static_cast<size_t>(e->plan.io_bytes + 64));
}

void SourceWriter::place(const Regions& regions, int64_t most_arena, Executor& executor) {
  executor_ = &executor;
  regions_ = regions;
  most_arena_ = most_arena;
}

const Compiled* SourceWriter::compiled() const { return entries_.empty() ? nullptr : &entries_.back()->compiled; }
const Plan* SourceWriter::plan() const { return entries_.empty() ? nullptr : &entries_.back()->plan; }
int64_t SourceWriter::kernel_calls() const {
  if (entries_.empty()) return 0;
  const Entry& e = *entries_.back();
  return e.program ? e.program->kernel_calls() : static_cast<int64_t>(e.plan.steps.size());
}

Status SourceWriter::compile_for(const Extents& extents, PackStore& packs) {
  auto entry = std::make_unique<Entry>();
  entry->extents = extents;
  Result<Compiled> compiled = compile_encoder(files_, options_, &packs, decoder_, extents);
  if (!compiled.is_ok()) return compiled.status();
  entry->compiled = std::move(*compiled);
  const Graph& graph = entry->compiled.graph;
  for (const StatePair& s : entry->compiled.binding.states) {
    if (s.present == kNoValue) continue;
    const Dim& rows = graph.values[s.present].info.shape[static_cast<size_t>(s.axis)];
    const bool fits =
        rows.is_const() ? entry->rows == 0 || entry->rows == rows.value() : takes_ids_ && rows == Dim::symbol(kSymS);
    if (!fits)
      return Status::error("encoder: the rows of '" + s.name + "' are " + rows.str(&graph.symbol_names()) +
                           ", not known before it runs, or not those of other sources");
    if (rows.is_const()) entry->rows = rows.value();
  }
  if (takes_ids_) most_rows_ = std::min(most_rows_, entry->compiled.context);
  // What other programs are planned for is settled once they are.
  if (entry->rows > most_rows_ && executor_)
    return Status::error(Code::kContextExceeded, "a source of " + std::to_string(entry->rows) +
                                                     " rows; the decoder takes at most " + std::to_string(most_rows_));
  most_rows_ = std::max(most_rows_, entry->rows);
  const int64_t tokens = takes_ids_ ? most_rows_ : 1;
  Result<Plan> plan = make_plan(graph, entry->compiled.binding, {tokens, tokens, 1, most_rows_});
  if (!plan.is_ok()) return plan.status().with_context("encoder");
  entry->plan = std::move(*plan);
  entries_.push_back(std::move(entry));
  if (entries_.size() > kMostEntries) {
    if (entries_[0]->io) munmap(entries_[0]->io, static_cast<size_t>(entries_[0]->plan.io_bytes + 64));
    entries_.erase(entries_.begin());
  }
  return Status::ok();
}

// Memory and prepared kernels, at the first run.
Status SourceWriter::prepare(Entry& e) {
  if (e.program) return Status::ok();
  if (e.plan.arena_bytes > most_arena_)
    return Status::error(Code::kNoRoom, "encoder: one run needs " + std::to_string(e.plan.arena_bytes) +
                                            " bytes of activations, more than " + std::to_string(most_arena_));
  const size_t bytes = static_cast<size_t>(e.plan.io_bytes + 64);
  if (!e.io) {  // else an earlier run got no further
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
      return Status::error(Code::kNoRoom, "cannot reserve " + std::to_string(bytes) + " bytes for the encoder");
    e.io = static_cast<std::byte*>(p);
  }
  Regions regions = regions_;
  regions.io = e.io;
  Result<std::unique_ptr<Program>> program = Program::create(
      e.compiled.graph, e.compiled.binding, e.plan, {"", {}, "an encoder takes one source"}, regions, *executor_);
  if (!program.is_ok()) return program.status().with_context("encoder");
  e.program = std::move(*program);
  return Status::ok();
}

Result<SourceWriter::Entry*> SourceWriter::entry_for(const Extents& extents) {
  for (const auto& e : entries_)
    if (e->extents == extents) return e.get();
  PackStore packs(pool_);
  files_.each([&](const ImportedModel& m) {
    for (const auto& file : m.files) packs.add_file(file.get());
  });
  SITU_RETURN_IF_ERROR(compile_for(extents, packs).or_code(Code::kUnsupportedModel));
  return entries_.back().get();
}

Result<std::shared_ptr<const Source>> SourceWriter::run(const EncoderInput& input, Ledger& ledger) {
  SITU_RETURN_IF_ERROR(check_encoder_input(encoder(), input, most_rows_));
  Result<Entry*> entry = entry_for(input.extents());
  if (!entry.is_ok()) return entry.status();
  Entry& e = **entry;
  SITU_RETURN_IF_ERROR(prepare(e));
  const int64_t rows = e.rows > 0 ? e.rows : static_cast<int64_t>(input.ids.size());
  StatePool& states = *const_cast<StatePool*>(regions_.states);
  const auto source = std::make_shared<const Source>(states, rows);  // gives its slots back if the run fails
  if (source->rows() == 0)
    return Status::error(Code::kNoRoom, "no room for a source of " + std::to_string(rows) + " rows: of " +
                                            std::to_string(states.space(SpaceKind::kSource).capacity()) + " slots " +
                                            std::to_string(states.space(SpaceKind::kSource).free_slots()) +
                                            " are free");
  std::vector<std::byte*> tensors;
  for (const Root& r : e.plan.ports) {
    const Tensor& t = input.tensors.at(e.compiled.graph.values[r.value].name);
    tensors.push_back(t.view().data);
  }
  Segment segment;
  segment.tokens = input.ids.data();
  segment.count = takes_ids_ ? rows : 1;
  segment.write_slot = source->first_slot();
  segment.runs = &source->run();
  segment.run_count = 1;
  segment.keys = segment.count;
  segment.source_rows = rows;
  StepInput step{{&segment, 1}, 0};
  step.tensors = tensors;
  SITU_RETURN_IF_ERROR(e.program->run(step, ledger).with_context("encoder"));
  return source;
}

}  // namespace situ
