// Programs that write the embeddings of a prompt: of text the lookup, of pictures and sounds their encoders, each at
// its tokens' places in one buffer, which the decoder's program then reads where it lies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/stage_clock.h"
#include "passes/pack_digest.h"
#include "passes/pack_store.h"
#include "runtime/encoder_input.h"
#include "runtime/media_graphs.h"
#include "runtime/media_rows.h"
#include "runtime/pack_saver.h"
#include "runtime/program.h"

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
  // `files`, `cut` and what `regions` names must outlive the writer. `chunk`: most tokens of a step.
  // `whole`: prompts are one step, so that the embeddings of all their tokens are held.
  static Result<std::unique_ptr<MediaWriter>> create(const ModelFiles& files, const EngineOptions& options,
                                                     const CutGraphs& cut, int64_t chunk, bool whole, ThreadPool& pool);
  ~MediaWriter();
  int64_t arena_bytes() const { return lookup_plan_.arena_bytes; }
  // Embeddings of text by the ids of a step's segments, behind each other; there until the next call.
  Result<std::byte*> look_up(std::span<const Segment> text, Ledger& ledger);
  int64_t row_bytes() const { return width() * dtype_bytes(rows_info().type); }
  // Where the programs run, before the first run().
  Status place(const Regions& regions, int64_t most_arena, Executor& executor);
  // `stages`: what each encoder and the lookup took are added, in order; null: they are not wanted. Errors: those of
  // media_places, check_media_rows and set_media_positions; those of a program.
  Result<std::shared_ptr<const MediaRows>> run(const MediaPrompt& prompt, const EncoderInput& input, Ledger& ledger,
                                               std::vector<Stage>* stages);

  const Compiled& lookup() const { return cut_.lookup; }
  const Plan& lookup_plan() const { return lookup_plan_; }
  int64_t lookup_kernel_calls() const { return lookup_->kernel_calls(); }
  // The newest program of an encoder; null: it was not run so far.
  struct Entry {
    size_t encoder = 0;
    MediaKey key;
    Compiled compiled;
    Plan plan;
    std::unique_ptr<Program> program;
    std::byte* io = nullptr;
    int64_t rows = 0;
    std::vector<int64_t> order;  // MediaGraph::take_order
  };
  const Entry* newest(size_t encoder) const;
  // Waits until packed weights of encoders are written.
  void finish_saving() { saver_.finish(); }
  const ModelFiles& files() const { return files_; }

 private:
  MediaWriter(const ModelFiles& files, const EngineOptions& options, const CutGraphs& cut, ThreadPool& pool)
      : files_(files), options_(options), cut_(cut), pool_(pool) {}
  Result<Entry*> entry_for(const MediaPlaces::Encoder& places);
  Status prepare(Entry& entry);
  Status look_up(const MediaPrompt& prompt, const std::vector<char>& taken, MediaRows& rows, Ledger& ledger);
  Status encode(Entry& entry, const MediaPlaces::Encoder& places, MediaRows& rows, Ledger& ledger);
  const ValueInfo& rows_info() const { return cut_.lookup.graph.values[cut_.lookup.binding.rows].info; }
  int64_t width() const { return rows_info().shape[2].value(); }
  int64_t key_of(const MediaRows& rows, int64_t token) const;

  const ModelFiles& files_;
  const EngineOptions options_;
  const CutGraphs& cut_;
  ThreadPool& pool_;
  int64_t chunk_ = 1, most_arena_ = 0;
  bool whole_ = false;
  DigestSecret secret_{};
  Plan lookup_plan_;
  std::byte* lookup_io_ = nullptr;
  std::unique_ptr<Program> lookup_;
  Regions regions_;
  Executor* executor_ = nullptr;
  std::vector<std::unique_ptr<Entry>> entries_;  // the newest last
  PackSaver saver_;
};

}  // namespace situ
