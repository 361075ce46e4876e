// The rows that a step appends to what was a cache of a fixed size.
//
//   after = update(before, rows)  ->  after = Concat(before, rows)
//
// A state grows along its own axes. Where the update has more or fewer of them, as without the one of the batch:
//
//   present = Concat(past, rows in the axes of past), after = present in the axes of the update
#pragma once

#include <vector>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/states/cache_update.h"

namespace situ {

class CacheAppender {
 public:
  CacheAppender(PassContext& context, Builder& builder) : context_(context), graph_(context.graph), builder_(builder) {}

  // Replaces `n`, which gives `after`. The past has P rows.
  void append(const Node& n, const CacheUpdate& c);

 private:
  bool has_other_axes(const CacheUpdate& c) const;
  void append_to_past(const CacheUpdate& c, ValueId rows, const Shape& dims);
  ValueId laid(ValueId x, const Shape& dims, const std::vector<int64_t>& order, const Shape& target,
               ValueId result = kNoValue);
  Dim tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }
  Dim past() const { return context_.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP); }

  PassContext& context_;
  Graph& graph_;
  Builder& builder_;
};

}  // namespace situ
