#include "pipelines/activation.h"

#include <algorithm>
#include <cmath>

namespace situ {
namespace {

struct ActivationName {
  const char* name;
  Activation activation;
};
constexpr ActivationName kActivations[] = {
    {"Identity", Activation::kIdentity},
    {"Tanh", Activation::kTanh},
    {"Sigmoid", Activation::kSigmoid},
    {"ReLU", Activation::kRelu},
    {"GELU", Activation::kGelu},
    {"Softmax", Activation::kSoftmax},
    {"ReLU6", Activation::kRelu6},
    {"SiLU", Activation::kSilu},
    {"Mish", Activation::kMish},
    {"ELU", Activation::kElu},
    {"CELU", Activation::kCelu},
    {"SELU", Activation::kSelu},
    {"Softplus", Activation::kSoftplus},
    {"Softsign", Activation::kSoftsign},
    {"Softmin", Activation::kSoftmin},
    {"LogSoftmax", Activation::kLogSoftmax},
    {"LogSigmoid", Activation::kLogSigmoid},
    {"Hardsigmoid", Activation::kHardsigmoid},
    {"Hardswish", Activation::kHardswish},
    {"Hardtanh", Activation::kHardtanh},
    {"Hardshrink", Activation::kHardshrink},
    {"Softshrink", Activation::kSoftshrink},
    {"Tanhshrink", Activation::kTanhshrink},
    {"LeakyReLU", Activation::kLeakyRelu},
};

double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

// log(1 + exp(x)), of which torch takes x itself above 20.
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// Source: the formulas in torch.nn's documentation, with each class's default arguments.
double activated(Activation activation, double x) {
  constexpr double kSeluAlpha = 1.6732632423543772848170429916717, kSeluScale = 1.0507009873554804934193349852946;
  constexpr double kShrink = 0.5, kLeak = 0.01;
  const double sixth = std::clamp(x / 6 + 0.5, 0.0, 1.0);
  switch (activation) {
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kRelu:
      return std::max(0.0, x);
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kRelu6:
      return std::clamp(x, 0.0, 6.0);
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kMish:
      return x * std::tanh(softplus(x));
    case Activation::kElu:
    case Activation::kCelu:
      return x > 0 ? x : std::expm1(x);
    case Activation::kSelu:
      return kSeluScale * (x > 0 ? x : kSeluAlpha * std::expm1(x));
    case Activation::kSoftplus:
      return softplus(x);
    case Activation::kSoftsign:
      return x / (1 + std::abs(x));
    case Activation::kLogSigmoid:
      return log_sigmoid(x);
    case Activation::kHardsigmoid:
      return sixth;
    case Activation::kHardswish:
      return x * sixth;
    case Activation::kHardtanh:
      return std::clamp(x, -1.0, 1.0);
    case Activation::kHardshrink:
      return std::abs(x) > kShrink ? x : 0.0;
    case Activation::kSoftshrink:
      return x > kShrink ? x - kShrink : x < -kShrink ? x + kShrink : 0.0;
    case Activation::kTanhshrink:
      return x - std::tanh(x);
    case Activation::kLeakyRelu:
      return x > 0 ? x : kLeak * x;
    case Activation::kIdentity:
    case Activation::kSoftmax:
    case Activation::kSoftmin:
    case Activation::kLogSoftmax:
      break;
  }
  return x;
}

// exp(sign * x_i) over their sum, or its logarithm.
void softmax(std::span<float> row, double sign, bool logarithm) {
  double most = -HUGE_VAL, sum = 0;
  for (const float x : row) most = std::max(most, sign * static_cast<double>(x));
  for (const float x : row) sum += std::exp(sign * static_cast<double>(x) - most);
  for (float& x : row) {
    const double below = sign * static_cast<double>(x) - most;
    x = static_cast<float>(logarithm ? below - std::log(sum) : std::exp(below) / sum);
  }
}

}  // namespace

std::optional<Activation> activation_by_path(const std::string& path) {
  if (!path.starts_with("torch.nn.")) return std::nullopt;
  const std::string name = path.substr(path.rfind('.') + 1);
  for (const ActivationName& known : kActivations)
    if (name == known.name) return known.activation;
  return std::nullopt;
}

std::string activation_names() {
  std::string names;
  for (const ActivationName& known : kActivations) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

void apply_activation(Activation activation, std::span<float> row) {
  switch (activation) {
    case Activation::kSoftmax:
      return softmax(row, 1, false);
    case Activation::kSoftmin:
      return softmax(row, -1, false);
    case Activation::kLogSoftmax:
      return softmax(row, 1, true);
    default:
      for (float& x : row) x = static_cast<float>(activated(activation, static_cast<double>(x)));
  }
}

}  // namespace situ
