#include "pipelines/sentence_layers.h"

#include <algorithm>
#include <cmath>

namespace situ {
namespace {

// Source: torch.nn.LayerNorm and torch.nn.functional.normalize.
constexpr double kLayerNormEpsilon = 1e-5, kLeastNorm = 1e-12;

// weight [out, in] times row [in], plus bias.
std::vector<float> linear(const std::vector<float>& weight, const std::vector<float>& bias, int64_t out,
                          const std::vector<float>& row) {
  std::vector<float> made;
  for (size_t o = 0; o < static_cast<size_t>(out); ++o) {
    double sum = bias.empty() ? 0.0 : static_cast<double>(bias[o]);
    const float* w = weight.data() + o * row.size();
    for (size_t i = 0; i < row.size(); ++i) sum += static_cast<double>(w[i]) * static_cast<double>(row[i]);
    made.push_back(static_cast<float>(sum));
  }
  return made;
}

void layer_norm(const std::vector<float>& weight, const std::vector<float>& bias, std::span<float> x) {
  const auto count = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const float v : x) mean += static_cast<double>(v) / count;
  for (const float v : x) variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  const double scale = 1 / std::sqrt(variance / count + kLayerNormEpsilon);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((static_cast<double>(x[i]) - mean) * scale * static_cast<double>(weight[i]) +
                              static_cast<double>(bias[i]));
}

}  // namespace

std::vector<float> Pooling::pool(std::span<const float> rows, int64_t width, int64_t skipped) const {
  const size_t w = static_cast<size_t>(width), tokens = rows.size() / w,
               first = std::min(tokens, static_cast<size_t>(include_prompt ? 0 : skipped));
  std::vector<float> all;
  const auto row = [&](size_t t) { return rows.subspan(t * w, w); };
  const auto weighted = [&](auto weight, double divisor) {
    std::vector<double> sum(w, 0.0);
    for (size_t t = first; t < tokens; ++t)
      for (size_t i = 0; i < w; ++i) sum[i] += weight(t) * static_cast<double>(row(t)[i]);
    for (const double s : sum) all.push_back(static_cast<float>(s / divisor));
  };
  const auto one = [](size_t) { return 1.0; };
  const double count = std::max(1e-9, static_cast<double>(tokens - first));
  for (const PoolingMode mode : modes) switch (mode) {
      case PoolingMode::kCls: {  // where nothing but the prompt is there, its first token
        const std::span<const float> cls = row(first < tokens ? first : 0);
        all.insert(all.end(), cls.begin(), cls.end());
        break;
      }
      case PoolingMode::kMax:
        for (size_t i = 0; i < w; ++i) {
          float most = -1e9f;
          for (size_t t = first; t < tokens; ++t) most = std::max(most, row(t)[i]);
          all.push_back(most);
        }
        break;
      case PoolingMode::kMean:
        weighted(one, count);
        break;
      case PoolingMode::kMeanSqrtLength:
        weighted(one, std::sqrt(count));
        break;
      case PoolingMode::kWeightedMean: {
        double weights = 0;
        for (size_t t = first; t < tokens; ++t) weights += static_cast<double>(t + 1);
        weighted([](size_t t) { return static_cast<double>(t + 1); }, std::max(1e-9, weights));
        break;
      }
      case PoolingMode::kLastToken:
        if (first < tokens)
          all.insert(all.end(), row(tokens - 1).begin(), row(tokens - 1).end());
        else
          all.resize(all.size() + w, 0.0f);
        break;
    }
  return all;
}

void normalize(std::span<float> row) {
  double squares = 0;
  for (const float v : row) squares += static_cast<double>(v) * static_cast<double>(v);
  const double norm = std::max(kLeastNorm, std::sqrt(squares));
  for (float& v : row) v = static_cast<float>(static_cast<double>(v) / norm);
}

std::vector<float> SentenceLayer::of(std::vector<float> row) const {
  if (kind == Kind::kNormalize) {
    normalize(row);
  } else if (kind == Kind::kLayerNorm) {
    layer_norm(weight, bias, row);
  } else {
    std::vector<float> made = linear(weight, bias, out, row);
    apply_activation(activation, made);
    if (adds_row) {
      const std::vector<float> added = residual.empty() ? std::move(row) : linear(residual, {}, out, row);
      for (size_t i = 0; i < made.size(); ++i) made[i] += added[i];
    }
    return made;
  }
  return row;
}

Status SentenceLayer::apply(SentenceRows* rows) const {
  const auto found = rows->find(from);
  if (found == rows->end() && kind == Kind::kNormalize) return Status::ok();
  std::map<std::string, int64_t> width;
  if (found != rows->end()) width[from] = std::ssize(found->second);
  SITU_RETURN_IF_ERROR(apply(&width));
  (*rows)[to] = of(found->second);
  return Status::ok();
}

Status SentenceLayer::apply(std::map<std::string, int64_t>* widths) const {
  const auto found = widths->find(from);
  if (found == widths->end() && kind == Kind::kNormalize) return Status::ok();
  if (found == widths->end())
    return Status::error(Code::kBadFile, name + ": takes '" + from + "', which no module before it makes");
  if (in > 0 && in != found->second)
    return Status::error(Code::kBadFile, name + ": takes " + std::to_string(in) +
                                             " numbers, and what stands before it gives " +
                                             std::to_string(found->second));
  (*widths)[to] = out > 0 ? out : found->second;
  return Status::ok();
}

}  // namespace situ
