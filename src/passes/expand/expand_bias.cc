#include "passes/expand/expand_bias.h"

#include <algorithm>
#include <cmath>

namespace situ {
namespace {

constexpr int64_t kMostDistance = 1 << 20;

// Of a key that stands `distance` behind the query, or before it if that is negative.
int64_t bucket_of(int64_t distance, int64_t buckets, int64_t most, bool both_ways) {
  int64_t first = 0, apart = std::max<int64_t>(-distance, 0);
  if (both_ways) {
    buckets /= 2;
    apart = std::abs(distance);
    if (distance > 0) first = buckets;
  }
  const int64_t exact = buckets / 2;
  if (apart < exact) return first + apart;
  const auto ratio = [&](int64_t d) { return std::log(static_cast<float>(d) / static_cast<float>(exact)); };
  const auto more = static_cast<int64_t>(ratio(apart) / ratio(most) * static_cast<float>(buckets - exact));
  return first + std::min(exact + more, buckets - 1);
}

}  // namespace

Status expand_relative_bias(Graph& graph, Builder& builder, const Node& n) {
  const Shape& table = graph.values[n.in[0]].info.shape;
  const int64_t most = n.attr_int("max_distance", 0);
  const bool both_ways = n.attr_int("is_bidirectional", 0) != 0;
  if (!table[0].is_const())
    return Status::error(n.label() + ": bias_table has " + table[0].str() +
                         " rows, which are not known before the step");
  const int64_t buckets = table[0].value(), exact = buckets / (both_ways ? 4 : 2);
  if (exact < 1 || most <= exact || most > kMostDistance)
    return Status::error(n.label() + ": max_distance " + std::to_string(most) + " with " + std::to_string(buckets) +
                         " buckets" + (both_ways ? ", is_bidirectional" : "") + " should be from " +
                         std::to_string(exact + 1) + " to " + std::to_string(kMostDistance));
  std::vector<int64_t> by_distance;
  for (int64_t d = -most; d <= most; ++d) by_distance.push_back(bucket_of(d, buckets, most, both_ways));
  const auto number = [&](int64_t x) { return graph.add_constant(n.name + "/number", Tensor::scalar_i64(x)); };
  const auto places = [&](ValueId length, int64_t axis) {
    const ValueId count = builder.cast(builder.op("Squeeze", {length}), DType::kI64);
    return builder.op("Unsqueeze", {builder.op("Range", {number(0), count, number(1)}), builder.constant_i64({axis})});
  };
  ValueId at = builder.op("Sub", {places(n.in[2], 0), places(n.in[1], 1)});
  at = builder.op("Min", {builder.op("Max", {at, number(-most)}), number(most)});
  at = builder.op("Add", {at, number(most)});
  const ValueId by_bucket = builder.transpose(builder.reshape(n.in[0], {-1, buckets}), {1, 0});
  const ValueId rows = builder.op("Gather", {by_bucket, builder.op("Gather", {builder.constant_i64(by_distance), at})});
  const ValueId by_head = builder.transpose(rows, {2, 0, 1});
  builder.op("Unsqueeze", {by_head, builder.constant_i64({0})}, n.out[0]);
  return Status::ok();
}

}  // namespace situ
