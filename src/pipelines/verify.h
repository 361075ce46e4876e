// `situ check --verify`: the literal graph and the placed programs on the same prompts.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "situ/load_options.h"

namespace situ {

struct Verification {
  int64_t prompts = 0, tokens = 0;
  double largest_difference = 0, largest_logit = 0;  // of all logits, or numbers of rows, that were compared
  bool ids_equal = true;                             // the most probable tokens
  std::vector<int64_t> lengths;                      // of one text, at which logits were compared (telling_lengths)
  Status status;                                     // why nothing, or not all, was compared
  bool agrees() const;                               // within 1e-3 of the largest logit
};

// Loads the model twice, with float activations, and runs `prompts` prompts of random ids through both: of several
// lengths, whole, in parts, forked, and together in one step; behind each the literal graph's next tokens. One more
// text is long enough to pass each number that the graph compares lengths or positions with.
Verification verify_model(const std::string& path, const LoadOptions& options, int64_t prompts);

}  // namespace situ
