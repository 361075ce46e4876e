// Masks of com.microsoft attention: a number for each key, above 0 if it is seen, for all queries or for each; or a
// length for each text. Those of padding hide nothing, as there is none, and are left out; others become a bias.
#pragma once

#include <string>
#include <vector>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/probe.h"

namespace situ {

class FusedMasks {
 public:
  FusedMasks(PassContext& context, Builder& builder) : context_(context), graph_(context.graph), builder_(builder) {}

  // The mask that `n` takes at operand i, if any, before its situ.Attention on `past` and `queries` new tokens is
  // built: `bias`, with what the mask adds to scores, where it says something for each query.
  ValueId before(const Node& n, size_t i, const Dim& past, const Dim& queries, ValueId bias);
  // The same, behind that node, which is the last one: masks that are left are looked at by check().
  void behind(const Node& n, size_t i);

  // Once all nodes are there: whether the masks that were left out hide a key; those that do become a bias. Error: a
  // length is another than that of all keys.
  Status check();

 private:
  struct Left {
    std::string node;
    ValueId mask = kNoValue, keys = kNoValue, attended = kNoValue;  // what the situ.Attention reads and writes
    float filter = 0;
  };
  Status fail(const Left& left, const std::string& why) const;
  // What is added to scores [B, 1, S or 1, T]: `filter` where `mask`, of 2 or 3 dims, has no number above 0.
  ValueId added(ValueId mask, float filter, DType type);
  ValueId number(const std::string& name, float x, DType type);
  Result<bool> hides(Prober& prober, const Left& left) const;

  PassContext& context_;
  Graph& graph_;
  Builder& builder_;
  std::vector<Left> left_;
};

// GroupQueryAttention reads as many rows of its cache as seqlens_k says, plus one. Situ knows how many there are: a
// graph that wants another number computes something else. Error: it is another one at some step, or not shown.
Status check_key_lengths(PassContext& context);

}  // namespace situ
