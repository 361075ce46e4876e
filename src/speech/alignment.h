// When each token was spoken, by dynamic time warping over the weights of cross-attention. Source: openai/whisper,
// timing.py (Giorgino 2009 for the warping).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace situ {

// For each of tokens + 1 boundaries the frame where it lies: token i is spoken from frame [i] to frame [i + 1].
// `weights` [heads, rows, stride], of which the first `frames` of a row count, each row a distribution. The first of
// `tokens` + 1 rows that count is `first`; rows are standardised over all of them, smoothed over 7 frames by the
// median, and averaged over heads. All sizes at least 1.
std::vector<int64_t> align_tokens(std::span<const float> weights, int64_t heads, int64_t rows, int64_t stride,
                                  int64_t frames, int64_t first, int64_t tokens);

}  // namespace situ
