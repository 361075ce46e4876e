// What modules of sentence-transformers compute of the rows that a graph gives: pooling, and the layers behind it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipelines/activation.h"

namespace situ {

enum class PoolingMode { kCls, kMax, kMean, kMeanSqrtLength, kWeightedMean, kLastToken };

struct Pooling {
  std::vector<PoolingMode> modes;  // side by side, in this order
  int64_t width = 0;               // numbers of a token that the file declares; 0: it does not
  bool include_prompt = true;      // else tokens of the prompt are left out
  std::string file;                // for errors

  // Of rows [tokens, width] of one text, of which the first `skipped` are a prompt's.
  std::vector<float> pool(std::span<const float> rows, int64_t width, int64_t skipped) const;
};

// Rows of a text by their names, which modules read and write.
inline constexpr const char *kSentenceEmbedding = "sentence_embedding", *kScores = "scores";
using SentenceRows = std::map<std::string, std::vector<float>>;

struct SentenceLayer {
  enum class Kind { kNormalize, kDense, kLayerNorm } kind = Kind::kNormalize;
  std::string name;                 // for errors: "2_Dense"
  int64_t in = 0, out = 0;          // kDense, kLayerNorm
  std::vector<float> weight, bias;  // [out, in] and [out], or empty; of kLayerNorm [in] both
  Activation activation = Activation::kIdentity;
  // kDense: what is added behind the activation: the row itself, or `residual` [out, in] times the row.
  bool adds_row = false;
  std::vector<float> residual;
  std::string from = kSentenceEmbedding, to = kSentenceEmbedding;

  // A row named `from` -> one named `to`. Error: there is none, or of another width. kNormalize then does nothing.
  Status apply(SentenceRows* rows) const;
  // The same of widths, before there are rows.
  Status apply(std::map<std::string, int64_t>* widths) const;

 private:
  std::vector<float> of(std::vector<float> row) const;
};

// x / max(|x|, 1e-12)
void normalize(std::span<float> row);

}  // namespace situ
