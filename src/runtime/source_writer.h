// Programs that write sources: the encoder and the projections of its cross-attention keys and values, straight into
// slots of the source space.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "passes/pack/pack_store.h"
#include "runtime/encoder_input.h"
#include "runtime/encoder_programs.h"

namespace situ {

class SourceWriter {
 public:
  // `files`, `decoder` and what place() is given must outlive the writer. Compiles at once where the encoder takes ids,
  // or arrays of known extents; else for each new extents, when they are given.
  static Result<std::unique_ptr<SourceWriter>> create(const ModelFiles& files, const EngineOptions& options,
                                                      const Compiled& decoder, PackStore& packs);

  // Where the programs run and are built, before the first encoding().
  void place(EncoderRoom& room, ProgramBuilder& builder) {
    room_ = &room;
    builder_ = &builder;
  }
  // One run of the encoder. Errors, now or as it goes on: an input that is missing, unknown or of another type, rank or
  // extent (names it, and what is wanted); a source that is longer than the model or the space allows; those of a step.
  Result<std::unique_ptr<Encoding>> encoding(const EncoderInput& input);

  // Most rows of a source; and those of the usual one, which a bound on memory counts.
  int64_t most_rows() const { return most_rows_; }
  int64_t counted_rows() const { return counted_rows_ > 0 ? counted_rows_ : most_rows_; }
  // What runs for ids, or for the extents used last; null: nothing was compiled so far.
  std::shared_ptr<const EncoderProgram> program() const {
    return shelf_.newest([](const Entry&) { return true; });
  }
  bool takes_ids() const { return takes_ids_; }

 private:
  SourceWriter(const ModelFiles& files, const EngineOptions& options, const Compiled& decoder)
      : files_(files), options_(options), decoder_(decoder) {}
  using Extents = std::map<std::string, std::vector<int64_t>>;
  struct Entry : EncoderProgram {
    Extents extents;
  };
  class Run;
  Status build(const Extents& extents, PackStore& packs);
  const Graph& encoder() const { return files_.encoder->graph; }

  const ModelFiles& files_;
  const EngineOptions options_;
  const Compiled& decoder_;
  EncoderRoom* room_ = nullptr;
  ProgramBuilder* builder_ = nullptr;
  int64_t most_rows_ = 0, counted_rows_ = 0;
  bool takes_ids_ = false;
  EncoderShelf<Entry> shelf_;
};

}  // namespace situ
