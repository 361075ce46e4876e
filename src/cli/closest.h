// What a word that nobody knows may have been meant to be.
#pragma once

#include <span>
#include <string>

namespace situ::cli {

// The known word that is nearest, with at most a third of its letters added, left out, replaced or swapped; "": none.
std::string closest(const std::string& word, std::span<const std::string> known);
// "; did you mean 'run'?", or "".
std::string did_you_mean(const std::string& word, std::span<const std::string> known);

}  // namespace situ::cli
