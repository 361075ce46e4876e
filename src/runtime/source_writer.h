// Programs that write sources: the encoder and the projections of its cross-attention keys and values, straight into
// slots of the source space.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "passes/pack_store.h"
#include "runtime/compile.h"
#include "runtime/encoder_input.h"
#include "runtime/program.h"

namespace situ {

class SourceWriter {
 public:
  // `files`, `decoder` and what `regions` names must outlive the writer. `most_arena`: bytes of regions.arena. Compiles
  // at once where the encoder takes ids, or arrays of known extents; else for each new extents, when they are given.
  static Result<std::unique_ptr<SourceWriter>> create(const ModelFiles& files, const EngineOptions& options,
                                                      const Compiled& decoder, PackStore& packs, ThreadPool& pool);
  ~SourceWriter();

  // Where the programs run, before the first run().
  void place(const Regions& regions, int64_t most_arena, Executor& executor);
  // One run of the encoder. Errors: an input that is missing, unknown or of another type, rank or extent (names it, and
  // what is wanted); a source that is longer than the model or the space allows; those of a step.
  Result<std::shared_ptr<const Source>> run(const EncoderInput& input, Ledger& ledger);

  // Most rows of a source; and those of the usual one, which a bound on memory counts.
  int64_t most_rows() const { return most_rows_; }
  int64_t counted_rows() const { return counted_rows_ > 0 ? counted_rows_ : most_rows_; }
  // What runs for ids, or for the newest extents; null: nothing was compiled so far.
  const Compiled* compiled() const;
  const Plan* plan() const;
  int64_t kernel_calls() const;
  bool takes_ids() const { return takes_ids_; }

 private:
  SourceWriter(const ModelFiles& files, const EngineOptions& options, const Compiled& decoder, ThreadPool& pool)
      : files_(files), options_(options), decoder_(decoder), pool_(pool) {}
  using Extents = std::map<std::string, std::vector<int64_t>>;
  struct Entry {
    Extents extents;
    Compiled compiled;
    Plan plan;
    std::unique_ptr<Program> program;
    std::byte* io = nullptr;
    int64_t rows = 0;  // of the source; 0: as many as there are ids
  };
  Status compile_for(const Extents& extents, PackStore& packs);
  Status prepare(Entry& entry);
  Result<Entry*> entry_for(const Extents& extents);
  const Graph& encoder() const { return files_.encoder->graph; }

  const ModelFiles& files_;
  const EngineOptions options_;
  const Compiled& decoder_;
  ThreadPool& pool_;
  Regions regions_;
  Executor* executor_ = nullptr;
  int64_t most_arena_ = 0, most_rows_ = 0, counted_rows_ = 0;
  bool takes_ids_ = false;
  std::vector<std::unique_ptr<Entry>> entries_;  // the newest last
};

}  // namespace situ
