#include "runtime/source_writer.h"

#include <algorithm>

#include "base/assign.h"

namespace situ {

Result<std::unique_ptr<SourceWriter>> SourceWriter::create(const ModelFiles& files, const EngineOptions& options,
                                                           const Compiled& decoder, PackStore& packs) {
  std::unique_ptr<SourceWriter> w(new SourceWriter(files, options, decoder));
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
  SITU_RETURN_IF_ERROR(w->build(extents, packs));
  return w;
}

// A program for arrays of these extents, on the shelf.
Status SourceWriter::build(const Extents& extents, PackStore& packs) {
  auto entry = std::make_shared<Entry>();
  entry->extents = extents;
  SITU_TAKE(compiled, compile_encoder(files_, options_, &packs, decoder_, extents));
  entry->compiled = std::move(compiled);
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
  // What other programs are planned for is settled once they are.
  if (!room_)
    most_rows_ = std::max(takes_ids_ ? std::min(most_rows_, entry->compiled.context) : most_rows_, entry->rows);
  if (entry->rows > most_rows_)
    return Status::error(Code::kContextExceeded, "a source of " + std::to_string(entry->rows) +
                                                     " rows; the decoder takes at most " + std::to_string(most_rows_));
  const int64_t tokens = takes_ids_ ? most_rows_ : 1;
  SITU_RETURN_IF_ERROR(assign(&entry->plan, make_plan(graph, entry->compiled.binding, {tokens, tokens, 1, most_rows_}))
                           .with_context("encoder"));
  if (room_) SITU_RETURN_IF_ERROR(entry->place(*room_, "encoder"));
  shelf_.keep(std::move(entry));
  return Status::ok();
}

class SourceWriter::Run : public Encoding {
 public:
  Run(SourceWriter& writer, const EncoderInput& input) : Encoding(*writer.room_), writer_(writer), input_(input) {}

  Result<bool> run(Clock::time_point until, std::vector<Stage>* stages) override {
    if (!entry_) {
      SITU_RETURN_IF_ERROR(assign(&entry_, find()));
    }
    if (!entry_ || !room_.take(this)) return false;
    if (!source_) SITU_RETURN_IF_ERROR(begin());
    const Result<bool> done = entry_->program->go_on(until, *room_.ledger);
    if (!done.is_ok()) return done.status().with_context("encoder");
    if (!*done) return false;
    room_.leave(this);
    clock_.end("encoder", stages);
    return true;
  }
  void give(Sequence& sequence) override {
    sequence.clear();
    sequence.set_source(std::move(source_));
  }

 private:
  Result<std::shared_ptr<Entry>> find() {
    const Extents extents = input_.extents();
    return program(
        *writer_.builder_, [&] { return writer_.shelf_.find([&](const Entry& e) { return e.extents == extents; }); },
        [&writer = writer_, extents](ProgramBuilder::Build&, ThreadPool& pool) {
          PackStore packs(pool);
          writer.files_.each([&](const ImportedModel& m) {
            for (const auto& file : m.files) packs.add_file(file.get());
          });
          return writer.build(extents, packs).or_code(Code::kUnsupportedModel);
        });
  }

  // Takes slots for the source.
  Status begin() {
    SITU_RETURN_IF_ERROR(entry_->place(room_, "encoder"));
    SITU_RETURN_IF_ERROR(room_.claim(entry_->plan.arena_bytes, 0, "encoder"));
    const int64_t rows = entry_->rows > 0 ? entry_->rows : static_cast<int64_t>(input_.ids.size());
    StatePool& states = *const_cast<StatePool*>(room_.regions.states);
    auto source = std::make_shared<const Source>(states, rows);  // gives its slots back if the run fails
    if (source->rows() == 0)
      return Status::error(Code::kNoRoom, "no room for a source of " + std::to_string(rows) + " rows: of " +
                                              std::to_string(states.space(SpaceKind::kSource).capacity()) + " slots " +
                                              std::to_string(states.space(SpaceKind::kSource).free_slots()) +
                                              " are free");
    for (const Root& r : entry_->plan.ports)
      tensors_.push_back(input_.tensors.at(entry_->compiled.graph.values[r.value].name).view().data);
    segment_.tokens = input_.ids.data();
    segment_.count = writer_.takes_ids_ ? rows : 1;
    segment_.write_slot = source->first_slot();
    segment_.runs = &source->run();
    segment_.run_count = 1;
    segment_.keys = segment_.count;
    segment_.source_rows = rows;
    step_ = {{&segment_, 1}, 0};
    step_.encodes = rows >= kEncodedRows;
    step_.tensors = tensors_;
    SITU_RETURN_IF_ERROR(entry_->program->prepare(step_, *room_.ledger).with_context("encoder"));
    source_ = std::move(source);
    return Status::ok();
  }

  SourceWriter& writer_;
  const EncoderInput input_;
  std::shared_ptr<Entry> entry_;
  std::shared_ptr<const Source> source_;
  std::vector<std::byte*> tensors_;
  Segment segment_;
  StepInput step_;
};

Result<std::unique_ptr<Encoding>> SourceWriter::encoding(const EncoderInput& input) {
  SITU_RETURN_IF_ERROR(check_encoder_input(encoder(), input, most_rows_));
  return std::unique_ptr<Encoding>(new Run(*this, input));
}

}  // namespace situ
