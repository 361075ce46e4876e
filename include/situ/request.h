// A request of a loaded model: what it goes on from, token ids and arrays for an encoder; and the caller's end of it.
// Requests of all threads share the model's steps; each has the answer that it has alone, to the bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "situ/generate.h"
#include "situ/status.h"

namespace situ {

class Model;

// An array of the caller, in C order and the machine's byte order. float32 for an input of float16 is rounded to it.
struct NamedArray {
  enum class Type { kBool, kInt32, kInt64, kFloat16, kFloat32 };
  std::string name;  // of the graph's input; GRAPH.NAME ("vision_encoder.pixel_values") where several have it
  Type type = Type::kFloat32;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // must stay until the call that it is given to returns
};

// What a generation goes on from.
struct Prompt {
  std::vector<int64_t> ids;          // of an encoder-decoder: the encoder's, where that takes ids, else the decoder's
  std::vector<NamedArray> arrays;    // inputs of the encoder: a spectrogram, pixels
  std::vector<int64_t> decoder_ids;  // of an encoder-decoder; empty: its start token
};

// Images of a prompt as the model's vision encoder reads them.
struct Images {
  struct Image {
    int64_t width = 0, height = 0;  // of the file, upright
    int64_t tokens = 0;             // of the prompt that stand for rows of the encoder
  };
  std::vector<NamedArray> arrays;  // for Prompt::arrays; they point into `memory`
  std::vector<Image> images;
  std::shared_ptr<const void> memory;
};
// One image: a file, else the bytes of one, else pixels [height, width, 3]. None is read after the call.
struct ImageSource {
  std::string file;
  const uint8_t* rgb = nullptr;
  int64_t width = 0, height = 0;
  std::span<const uint8_t> bytes = {};
};
struct ImageOptions {
  int64_t max_pixels = 64'000'000;  // width times height of a file
  // Settings of preprocessor_config.json that hold for this call: "do_image_splitting" -> "false". Values are JSON.
  std::map<std::string, std::string> processor;
};

// Reads files (png, jpeg, webp, the first frame of a gif) as the processor of the model's family does (docs/vision.md).
// Errors: the model has no vision encoder, or its family is not known; a file that cannot be read, has too many pixels,
// or is refused by the family's rules; a setting that is not known.
Result<Images> read_images(const Model& model, std::span<const std::string> files, const ImageOptions& options = {});
Result<Images> read_images(const Model& model, std::span<const ImageSource> sources, const ImageOptions& options = {});

// Token ids of a text with its images: each placeholder ("<image>") becomes the tokens of an image, in order. Before a
// text without placeholders stand all images. chat: by the model's chat template, where the images come before the
// user's text; `system` is then the first message, if it is not empty.
// Errors: those of Model::encode and Model::encode_chat; another number of placeholders than of images.
struct ImageText {
  std::string text, system;
  bool chat = false;
};
Result<std::vector<int64_t>> encode_with_images(const Model& model, const ImageText& text, const Images& images);

// Sound files of a prompt as the model's audio encoder reads them.
struct Sounds {
  struct Sound {
    double duration_s = 0;
    int64_t tokens = 0;  // of the prompt that stand for rows of the encoder
  };
  std::vector<NamedArray> arrays;  // for Prompt::arrays; they point into `memory`
  std::vector<Sound> sounds;
  std::shared_ptr<const void> memory;
};
// Reads files (wav, flac, mp3, ogg) as the processor of the model's family does (docs/vision.md). Errors: the model has
// no audio encoder, or its family is not known; a file that cannot be read or is cut off; more tokens than the context.
Result<Sounds> read_sounds(const Model& model, std::span<const std::string> files);
// A file, else the bytes of one, which are not read after the call.
struct SoundSource {
  std::string file;
  std::span<const uint8_t> bytes = {};
};
Result<Sounds> read_sounds(const Model& model, std::span<const SoundSource> sources);
// The text in which each placeholder ("[AUDIO]") is the tokens of a sound, in order; in front of a text without
// placeholders stand all sounds. Error: another number of placeholders than of sounds.
Result<std::string> expand_sounds(const std::string& text, const Sounds& sounds);

// The prompt of a conversation by the model's chat template. `images` has those of all messages, in order; those of a
// message stand before its text. Errors: those of Model::encode_chat; another number of images than messages have.
struct ImageMessage {
  std::string role, text;
  size_t images = 0;
};
Result<std::vector<int64_t>> encode_with_images(const Model& model, std::span<const ImageMessage> messages,
                                                const Images& images);

struct Request {
  Prompt prompt;
  GenerateOptions options;
  std::shared_ptr<const void> memory;  // what the arrays of the prompt point into; it is held until the end
  // Somebody waits for the tokens: beside them a step takes at most twice the time that it takes without prompts, or
  // 30 ms. Else whole pieces of prompts are fed beside them: a list is done sooner.
  bool interactive = true;
  int priority = 0;    // higher ones are begun first
  std::string client;  // within a priority clients take turns; requests of one are begun in their order
  // When it ends at the latest, waiting or not: FinishReason::kDeadline, with what there is by then.
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

// Any thread may call it. Destroying it cancels the request.
class Ticket {
 public:
  Ticket(Ticket&&) noexcept;
  Ticket& operator=(Ticket&&) noexcept;
  ~Ticket();

  // The next token; none: it has not come within `patience`, or there are no more (ended()). Tokens wait here for as
  // long as it takes, and nobody else does.
  std::optional<Token> next(std::chrono::milliseconds patience = std::chrono::hours(24));
  std::optional<Token> poll() { return next(std::chrono::milliseconds(0)); }
  // Whether all tokens were taken and the request is over: result() does not wait.
  bool ended() const;
  // Calls `ready` whenever a token or the end comes, by a thread that must not be kept waiting; and now, if something
  // is there. Not after the ticket is gone.
  void on_ready(std::function<void()> ready);
  // The request ends after the step that runs, or within it where all that take part in it are cancelled: with
  // FinishReason::kCancelled and what there is by then.
  void cancel();
  // Waits for the end, whatever tokens were not taken; false: it has not come within `patience`.
  bool wait(std::chrono::milliseconds patience);
  // Waits for the end. Error: what failed before the first token.
  Result<Generation> result();

  struct Impl;

 private:
  friend class Model;
  explicit Ticket(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Bytes written since the model was loaded or the ledger was reset, by kind.
struct LedgerReading {
  int64_t computed = 0;  // new values
  int64_t copied = 0;    // bytes that already existed elsewhere
  int64_t packed = 0;    // weights re-laid out at load
};

struct PerplexityOptions {
  int64_t context = 0;  // tokens of a window; 0: the model's context length
  int64_t stride = 0;  // from one window to the next, less than a window; 0: half of one. Each token is scored once, in
                       // the first window that has it
};
struct Perplexity {
  int64_t tokens = 0;    // that were scored: all but the first
  double mean_nll = 0;   // of their negative log-likelihoods, natural logarithm; infinite where one had probability 0
  double value() const;  // exp(mean_nll)
  double ms = 0;
  int64_t bytes_copied = 0;
};

// Of a model since it was loaded, but for what says "now".
struct Stats {
  int64_t running = 0, waiting = 0;                                 // requests, now
  int64_t steps = 0;                                                // runs of a program that fed tokens
  int64_t rows = 0;                                                 // tokens that were fed, those of a step together
  int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;  // of requests that are over; cached: of the prompts
  int64_t preemptions = 0;
  int64_t slots = 0, slots_free = 0;  // of the state, now; free: kept prefixes count as taken
  int64_t slots_kept = 0;             // now, of kept prefixes
  int64_t bytes_copied = 0;
};

}  // namespace situ
