// Activation functions by the name of their class in torch.nn, as sentence-transformers writes them.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace situ {

enum class Activation {
  kIdentity,
  kTanh,
  kSigmoid,
  kRelu,
  kGelu,
  kSoftmax,
  kRelu6,
  kSilu,
  kMish,
  kElu,
  kCelu,
  kSelu,
  kSoftplus,
  kSoftsign,
  kSoftmin,
  kLogSoftmax,
  kLogSigmoid,
  kHardsigmoid,
  kHardswish,
  kHardtanh,
  kHardshrink,
  kSoftshrink,
  kTanhshrink,
  kLeakyRelu,
};

// By a path such as "torch.nn.modules.activation.Tanh". None: another class, or one of another package.
std::optional<Activation> activation_by_path(const std::string& path);
// "Identity, Tanh, ...", for errors.
std::string activation_names();

// Each number by itself, or the softmax of the row: as the class computes it that is made without arguments.
void apply_activation(Activation activation, std::span<float> row);

}  // namespace situ
