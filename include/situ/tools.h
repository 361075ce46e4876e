// For tools: what a model takes and gives, which states it has, where its values live and what could not be placed; and
// a record of which thread ran what and when, for `situ run --trace` and the kernel table of `situ bench`. Recording
// costs two clock readings per kernel call (some 50 ns); a program without a trace pays one branch. And answers to
// bodies of OpenAI's calls, for servers that are written around the library.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "situ/status.h"

namespace situ {

class Model;
struct GenerateOptions;
struct LoadOptions;

// One JSON object in UTF-8, as `situ inspect --json` prints it. `memory`: bytes, for the slots that fit them; 0: none
// given. Waits until packed weights are saved. Error: the naive mode has no placement.
Result<std::string> inspect(const Model& model, int64_t memory = 0);

// The same of a model that Model::load refuses for `reason`, under "unsupported": what its files say of themselves as
// far as they can be read.
std::string inspect_refused(const std::string& path, const LoadOptions& options, const std::string& reason);

// What inspect() or, of a model that is refused, inspect_refused() says, and under "passes" a list of what each pass of
// the compiler did while the model was loaded (docs/placement.md). Of a model that gives embeddings alone, or in the
// naive mode, the list and the file alone. `status`: why it was refused; the list ends before the pass that did it.
struct PassReport {
  Status status;
  std::string json;
};
PassReport inspect_passes(const std::string& path, const LoadOptions& options, int64_t memory = 0);

// Whether a model runs, as `situ check` says: one JSON object in UTF-8 (docs/check.md). No weights are packed.
// `verify`: prompts on which the literal graph and the placed programs are compared, both with float activations; 0:
// none.
struct Check {
  bool runs = false;     // it can be loaded, and no picture or sound encoder of it is refused
  bool verified = true;  // and the two agree, within 1e-3 of the largest logit
  std::string json;
};
Check check(const std::string& path, const LoadOptions& options, int64_t verify = 0);

// What is wrong with options whatever the model is: numbers out of range, options that do not go together, a schema, an
// expression or a grammar that cannot be used. generate() says the same, once the model is loaded.
Status check_options(const GenerateOptions& options);
// The same of ChatOptions::tools_json. The message names the field: "[1].function.name should be a string".
Status check_tools(const std::string& tools_json);

// How `situ chat` draws where the caller does not say. The folder's files decide where generation_config.json has a
// field of drawing, or genai_config.json says do_sample true; else temperature is 0.7, top_p 0.95 and top_k 50. What
// `options` say stays: beams and temperature 0 draw nothing.
void draw_as_chat(const Model& model, GenerateOptions* options);

// A model of a hub by its name, ORG/REPO[@REV][:VARIANT] or a short name (docs/names.md), in the cache that
// huggingface_hub uses too. Environment: HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_HUB_OFFLINE.
struct PullOptions {
  bool ask = true;                    // whether there is something newer; false: no request where all is there
  bool offline = false;               // no request at all
  std::vector<std::string> variants;  // as LoadOptions::variants; excludes the name's VARIANT
  std::vector<std::string> files;     // patterns such as "*.json": these files alone, and no model is chosen
  std::function<void(const std::string& line)> note;          // what will be fetched, before it is
  std::function<bool(int64_t done, int64_t total)> progress;  // bytes, now and then; false ends it (kInterrupted)
};
struct Pulled {
  std::string path;                   // of Model::load
  std::vector<std::string> variants;  // and its LoadOptions::variants
};
// A path that exists stays what it is. Errors: kInternal and kNoRoom: network and disk, another call may succeed;
// kNotFound: there is no such path, and the text is no name; else the name, or what the hub has under it. Where several
// models may be meant, reasons() has a name for each in `advice`.
Result<Pulled> pull(const std::string& name, const PullOptions& options = {});

// Bytes written since the model was loaded or the ledger was reset, by kind.
struct LedgerReading {
  int64_t computed = 0;  // new values
  int64_t copied = 0;    // bytes that already existed elsewhere
  int64_t packed = 0;    // weights re-laid out at load
};

// The answer to a body of one of OpenAI's calls, as `situ serve` gives it (docs/server.md), but for timings and limits:
// JSON texts. Any thread, one at a time. Destroying it ends what still runs.
class OpenAiAnswer {
 public:
  // `url`: "/v1/chat/completions", "/v1/completions", "/v1/embeddings". `model_name`: as answers to bodies without a
  // model have it. Does not wait, but for embeddings. What is wrong with the body is an answer too.
  OpenAiAnswer(const Model& model, const std::string& url, const std::string& body, const std::string& model_name);
  OpenAiAnswer(OpenAiAnswer&&) noexcept;
  OpenAiAnswer& operator=(OpenAiAnswer&&) noexcept;
  ~OpenAiAnswer();

  int status() const;    // 200, or that of an error; whole answers have theirs once next() has given them
  bool streams() const;  // in pieces, as the body asks for; one that fails ends with a piece {"error"}
  // The next piece, or the whole answer; none: it has not come within `patience`, or there are no more (ended()).
  std::optional<std::string> next(std::chrono::milliseconds patience = std::chrono::hours(24));
  bool ended() const;
  void cancel();  // there are no more pieces; by any thread, while another one waits in next() too

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TraceEvent {
  int32_t name = 0;   // Trace::name
  int64_t ready = 0;  // ns of the steady clock: the thread came to it; until `begin` it waited for the others
  int64_t begin = 0;
  int64_t end = 0;
};

// Each thread writes its own list; reading is for when no step runs.
class Trace {
 public:
  struct Name {
    std::string kind;   // "MatMulNBits"
    std::string where;  // "/model/layers.0/attn/q_proj"
    int64_t bytes = 0;  // stored bytes that one call reads from weights; 0: none, or not known
  };

  // `capacity`: events per thread; what comes after is counted and dropped.
  Trace(int threads, size_t capacity);

  static int64_t now();  // ns of the steady clock
  int32_t name(Name name);
  void add(int thread, const TraceEvent& event);

  const std::vector<Name>& names() const { return names_; }
  const std::vector<TraceEvent>& events(int thread) const { return events_[static_cast<size_t>(thread)]; }
  int threads() const { return static_cast<int>(events_.size()); }
  void clear();

  // Chrome's trace event format (Perfetto reads it): one track per thread, kernels and waits as spans.
  // Error: the file cannot be written.
  Status write(const std::string& path) const;

 private:
  std::vector<Name> names_;
  std::vector<std::vector<TraceEvent>> events_;
  std::vector<int64_t> dropped_;
  size_t capacity_;
};

}  // namespace situ
