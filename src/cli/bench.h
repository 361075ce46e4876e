// What the two halves of `situ bench` share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "situ/status.h"

namespace situ::cli {

// Prompt tokens that need no tokenizer: a repeatable sequence of `count` ids below the vocabulary.
std::vector<int64_t> make_prompt(int64_t count, int64_t vocabulary);

// The numbers of a list "35,512,2048". Error: a part is no number of at least `least`, or the list is empty; it names
// the option.
Result<std::vector<int64_t>> parse_counts(const std::string& option, const std::string& list, int64_t least,
                                          const std::string& noun);

// `situ bench --streams`: several prompts answered together, by continuous batching.
int bench_streams(BenchArguments arguments);

}  // namespace situ::cli
