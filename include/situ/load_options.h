// How a model is loaded. Its files, and those of packed weights, are mapped: while the model lives they may be replaced
// by others under their names, but not made shorter. What a step reads beyond their end is a SIGBUS, which ends the
// process unless it handles that (the program `situ` says which file, and exits with 2). A child of fork() may go on
// with a model that computes nothing in that moment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "situ/status.h"

namespace situ {

class Model;

struct LoadOptions {
  int threads = 0;             // at most 1,024; 0: one per CPU that the process may use
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
  // Element type of attention states: "f32", "f16", "bf16", "q8" (8 bits, with a scale for each row), or "auto": half
  // precision where rows of 8 KiB or more a token come from products with 8-bit activations, else as the file has it.
  std::string kv_type = "auto";
  // Path of a smaller model with the same tokens, which guesses what this one will say (GenerateOptions::draft_tokens).
  // Error: its tokenizer has other tokens, or there is none and its vocabulary is not as large; its state is recurrent,
  // and cannot be rewound.
  std::string draft;
  // Which precision of the graphs to run, where a folder has several: "q4" (model_q4.onnx) for all of them, or
  // "encoder_model=fp16" for one. Known: fp32 (no suffix), fp16, q4, q4f16, int8, uint8, quantized, bnb4. Default: the
  // file without suffix, else the only one.
  std::vector<std::string> variants;
  // Weights that the kernels want in another order are packed once and saved (where: README.md), and mapped by later
  // loads.
  bool pack_cache = true;
};

// For tools: what a model takes and gives, which states it has, where its values live and what could not be placed. One
// JSON object in UTF-8, as `situ inspect --json` prints it. `memory`: bytes, for the slots that fit them; 0: none
// given. Waits until packed weights are saved. Error: the naive mode has no placement.
Result<std::string> inspect(Model& model, int64_t memory = 0);

// The same of a model that Model::load refuses for `reason`, under "unsupported": what its files say of themselves as
// far as they can be read.
std::string inspect_refused(const std::string& path, const LoadOptions& options, const std::string& reason);

}  // namespace situ
