// Programs that write the embeddings of a prompt: of text the lookup, of pictures and sounds their encoders, each at
// its tokens' places in one buffer, which the decoder's program then reads where it lies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/stage_clock.h"
#include "passes/pack/pack_digest.h"
#include "passes/pack/pack_store.h"
#include "runtime/encoder_input.h"
#include "runtime/encoder_programs.h"
#include "runtime/media_graphs.h"
#include "runtime/media_rows.h"
#include "runtime/pack_saver.h"

namespace situ {

// The prompt that rows are made for: how many tokens its sequence has before it, and the first position of three rows.
struct MediaPrompt {
  std::span<const int64_t> ids;
  int64_t base = 0, first_position = 0;
};

// Which tokens of a prompt rows of which encoder stand for, in order. Errors: arrays that no encoder takes, that are
// missing, or of another type or extent; tokens of an encoder that gets no array, and arrays without a token.
struct MediaPlaces {
  struct Encoder {
    size_t index = 0;             // in ModelFiles::media
    std::vector<int64_t> tokens;  // numbers in the prompt
    std::map<std::string, Tensor> arrays;
  };
  std::vector<Encoder> encoders;
};
Result<MediaPlaces> media_places(const ModelFiles& files, std::span<const int64_t> ids, const EncoderInput& input);
// Error: the encoder makes another number of rows than tokens stand for.
Status check_media_rows(const MediaEncoder& encoder, const MediaPlaces::Encoder& places, int64_t rows);
// The positions of the prompt, where the decoder takes three rows of them; else none. Sets MediaRows::positions and
// next_position.
Status set_media_positions(const ModelFiles& files, const Compiled& decoder, const MediaPlaces& places,
                           const MediaPrompt& prompt, MediaRows* rows);

// The name of an encoder's stage: its file's, without the ending.
std::string stage_name(const MediaEncoder& encoder);

class MediaWriter {
 public:
  // `files`, `cut` and what place() is given must outlive the writer. `chunk`: most tokens of a step.
  // `whole`: prompts are one step, so that the embeddings of all their tokens are held.
  static Result<std::unique_ptr<MediaWriter>> create(const ModelFiles& files, const EngineOptions& options,
                                                     const CutGraphs& cut, int64_t chunk, bool whole);
  int64_t arena_bytes() const { return lookup_plan_.arena_bytes; }
  // Embeddings of text by the ids of a step's segments, behind each other; there until the next call.
  Result<std::byte*> look_up(std::span<const Segment> text);
  int64_t row_bytes() const { return width() * dtype_bytes(rows_info().type); }
  // Where programs run, the lookup and encoders, and are built, before the first encoding().
  Status place(const Regions& regions, EncoderRoom& room, ProgramBuilder& builder);
  // Errors, now or as it goes on: those of media_places, check_media_rows and set_media_positions; those of a program.
  Result<std::unique_ptr<Encoding>> encoding(const MediaPrompt& prompt, const EncoderInput& input);

  const Compiled& lookup() const { return cut_.lookup; }
  const Plan& lookup_plan() const { return lookup_plan_; }
  int64_t lookup_kernel_calls() const { return lookup_->kernel_calls(); }
  struct Entry : EncoderProgram {
    size_t encoder = 0;
    MediaKey key;
    std::vector<int64_t> order;  // MediaGraph::take_order
  };
  // The program of an encoder that was used last; null: it was not run so far.
  std::shared_ptr<const Entry> newest(size_t encoder) const {
    return shelf_.newest([&](const Entry& e) { return e.encoder == encoder; });
  }
  // Waits until packed weights of encoders are written.
  void finish_saving() { saver_.finish(); }
  const ModelFiles& files() const { return files_; }

 private:
  MediaWriter(const ModelFiles& files, const EngineOptions& options, const CutGraphs& cut)
      : files_(files), options_(options), cut_(cut) {}
  class Run;
  Result<std::shared_ptr<Entry>> build(const MediaPlaces::Encoder& places, ProgramBuilder::Build& build,
                                       ThreadPool& pool);
  Status look_up(const std::vector<char>& taken, MediaRows& rows);
  const ValueInfo& rows_info() const { return cut_.lookup.graph.values[cut_.lookup.binding.rows].info; }
  int64_t width() const { return rows_info().shape[2].value(); }
  int64_t key_of(const MediaRows& rows, int64_t token) const;

  const ModelFiles& files_;
  const EngineOptions options_;
  const CutGraphs& cut_;
  int64_t chunk_ = 1;
  bool whole_ = false;
  DigestSecret secret_{};
  Plan lookup_plan_;
  IoMemory lookup_io_;
  std::unique_ptr<Program> lookup_;
  EncoderRoom* room_ = nullptr;
  ProgramBuilder* builder_ = nullptr;
  EncoderShelf<Entry> shelf_;
  PackSaver saver_;
};

}  // namespace situ
