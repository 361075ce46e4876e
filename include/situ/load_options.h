// How a model is loaded, by whose threads, and what it then is. Its files, and those of packed weights, are mapped:
// while the model lives they may be replaced by others under their names, but not made shorter. What a step reads
// beyond their end is a SIGBUS, which ends the process unless it handles that (the program `situ` says which file, and
// exits with 2). A child of fork() may go on with a model that computes nothing in that moment.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "situ/status.h"

namespace situ {

// The threads that compute, and the one that feeds them: what models share that are loaded with it. It lives as long as
// somebody has it, a model or a copy.
class Runtime {
 public:
  static constexpr int kMostThreads = 1024;
  // `threads`: at most kMostThreads; 0: one per CPU that the process may use. Errors: out of range; the system has no
  // threads.
  static Result<Runtime> create(int threads = 0);
  // The one that all share who ask for so many threads.
  static Result<Runtime> shared(int threads = 0);
  int threads() const;

  struct Impl;

 private:
  friend struct Internals;
  explicit Runtime(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Element type of attention states. kAuto: half precision where rows of 8 KiB or more a token come from products with
// 8-bit activations, else as the file has it; kQ8: 8 bits, with a scale for each row.
enum class KvType { kAuto, kF32, kF16, kBF16, kQ8 };
// By its name: "auto", "f32", "f16", "bf16", "q8". Error: another one.
Result<KvType> kv_type_of(const std::string& name);

struct LoadOptions {
  int threads = 0;             // of Runtime::shared(), where no runtime is given
  bool naive = false;          // run the graph literally: the baseline, and the oracle of the tests
  int64_t context_length = 0;  // most tokens of a session; 0: what the model declares, if it holds as many
  // Bytes for weights, activations and state; what the first two leave is state of so many tokens, which all requests,
  // sessions and kept prefixes share, in shorter chunks where those asked for leave none. 0: the state may grow to half
  // of what the machine, and the process's control group, have free. What does not fit is refused.
  int64_t memory = 0;
  int64_t slots = 0;    // tokens of state, exactly so many; 0: what `memory` leaves
  int64_t chunk = 512;  // most tokens in one step; more where tokens depend on later ones of their prompt, or
                        // where the graph computes prompts as a whole only
  // Tokens attend to the last `window` tokens, themselves included, and to the first `sink` ones (Xiao et al.,
  // StreamingLLM, arXiv 2309.17453; distances between tokens stay what they are); but layers with a window of the
  // model's own that is no wider keep to that alone. Sequences then have no end (2^24 tokens), and take state for
  // `window` + `sink` + 2 (`chunk` + 64) tokens; a smaller `memory` makes chunks shorter, and is an error where
  // chunks of 1 do not fit. 0: no window but the model's own. Error: attention that is not recognised, positions from a
  // table that ends.
  int64_t window = 0, sink = 0;
  KvType kv_type = KvType::kAuto;
  // Path of a smaller model with the same tokens, which guesses what this one will say (GenerateOptions::draft_tokens).
  // Error: its tokenizer has other tokens, or there is none and its vocabulary is not as large; its state is recurrent,
  // and cannot be rewound.
  std::string draft;
  // Which precision of the graphs to run, where a folder has several: "q4" (model_q4.onnx) for all of them, or
  // "encoder_model=fp16" for one. Known: fp32 (no suffix) and the suffixes of transformers.js, Optimum and
  // sentence-transformers (fp16, q4f16, quantized, O2, qint8_avx512_vnni ...; an unknown one is answered by all).
  // Default: the file without suffix, else the only one.
  std::vector<std::string> variants;
  // Weights that the kernels want in another order are packed once and saved (where: README.md), and mapped by later
  // loads.
  bool pack_cache = true;
};

// What the model is and how it was placed, for tools.
struct ModelFacts {
  std::string file;
  std::vector<std::string> mapped_files;  // of all graphs, with external data
  std::string isa;                        // kernels in use
  std::string mode;                       // "in-place" or "naive"
  int threads = 0;
  int64_t vocabulary = 0;
  int64_t context_length = 0;
  int64_t weight_bytes = 0;    // the model's own
  int64_t computed_bytes = 0;  // that they take more, since some are computed from others at load
  int64_t arena_bytes = 0;
  int64_t state_bytes_per_token = 0;
  int64_t slots = 0;  // tokens that the state has room for
  int64_t kernel_calls_per_token = 0;
  std::string one_sequence;    // why prompts are computed one after the other; empty: together
                               // Single tokens share steps in any case
  int64_t embedding_size = 0;  // numbers of an embedding, all of them; 0: none was asked for yet, or the model has none
  double load_ms = 0;
  int64_t packed_bytes = 0;         // weights laid out anew by this load
  int64_t mapped_packed_bytes = 0;  // weights as a file has them that an earlier load saved
};

}  // namespace situ
