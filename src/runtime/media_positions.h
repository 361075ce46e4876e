// Positions of three rows (time, height, width) of prompts with pictures: M-RoPE.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace situ {

// Ids of the tokens that rows of pictures stand for, and of the one in front of a picture's first; -1: pictures need
// none.
struct PictureTokens {
  int64_t row = -1, start = -1;
};

// Positions [3, ids]: a text token has the same in each row, one more than the largest before it, or `first`. The
// tokens of a picture, as many as t*h*w / merge^2 of its grid (t, h, w), have p + (frame, row, column), where p is one
// more than the largest position before. Only so many pictures have them, the first ones, as start tokens stand in
// front of a row's; the tokens of others have positions of text. Source: Wang et al., Qwen2-VL, arXiv 2409.12191;
// get_rope_index of transformers' Qwen2-VL. Errors: a grid that is not of positive numbers or no multiple of merge;
// other numbers of tokens than the grids say.
Result<std::vector<int64_t>> media_positions(std::span<const int64_t> ids, int64_t first, const PictureTokens& tokens,
                                             std::span<const int64_t> grids, int64_t merge);

}  // namespace situ
