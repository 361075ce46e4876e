#include "passes/expand/expand_pictures.h"

#include <algorithm>
#include <cmath>

namespace situ {
namespace {

// One axis of a Resize.
struct ResizedAxis {
  int64_t in = 0, out = 0;
  float scale = 1;
};

class PictureWriter {
 public:
  PictureWriter(Graph& graph, Builder& builder, const Node& n) : graph_(graph), builder_(builder), n_(n) {}

  Status run(bool* expanded) {
    *expanded = true;
    if (n_.op == "BatchNormalization") return batch_norm();
    if (n_.op == "GroupNormalization") return group_norm();
    if (n_.op == "GlobalAveragePool" || n_.op == "GlobalMaxPool") return global_pool();
    if (n_.op == "Resize") return resize();
    *expanded = false;
    return Status::ok();
  }

 private:
  Status fail(const std::string& what) const { return n_.error(what, Reason::Kind::kAttribute); }
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  DType type() const { return graph_.values[n_.in[0]].info.type; }
  ValueId floats(const std::string& name, std::vector<int64_t> dims, const std::vector<float>& numbers) {
    const Tensor tensor = Tensor::allocate(DType::kF32, dims);
    for (size_t i = 0; i < numbers.size(); ++i) tensor.view().as<float>()[i] = numbers[i];
    const ValueId v = graph_.add_constant(n_.name + "/" + name, tensor);
    return type() == DType::kF32 ? v : builder_.cast(v, type());
  }
  // [C] -> [C, 1..], as it stands for channels of x.
  ValueId by_channel(ValueId x, size_t rank) {
    std::vector<int64_t> dims(rank - 1, 1);
    dims[0] = -1;
    return builder_.reshape(x, dims);
  }
  ValueId mean(ValueId x, std::vector<int64_t> axes) {
    const ValueId m = builder_.op("ReduceMean", {x});
    builder_.last().opset = 13;
    builder_.last().set_ints("axes", std::move(axes));
    return m;
  }

  Status batch_norm() {
    const size_t rank = shape(n_.in[0]).size();
    const ValueId small = floats("epsilon", {1}, {n_.attr_float("epsilon", 1e-5f)});
    const ValueId root = builder_.op("Sqrt", {builder_.op("Add", {n_.in[4], small})});
    const ValueId scale = builder_.op("Div", {n_.in[1], root});
    const ValueId shift = builder_.op("Sub", {n_.in[2], builder_.op("Mul", {n_.in[3], scale})});
    const ValueId factor = by_channel(scale, rank), term = by_channel(shift, rank);
    builder_.op("Add", {builder_.op("Mul", {n_.in[0], factor}), term}, n_.out[0]);
    return Status::ok();
  }

  Status group_norm() {
    const Shape whole = shape(n_.in[0]);
    const bool by_group = n_.opset < 21;
    const ValueId small = floats("epsilon", {1}, {n_.attr_float("epsilon", 1e-5f)});
    const ValueId groups = builder_.reshape(n_.in[0], {0, n_.attr_int("num_groups", 1), -1});
    const ValueId x = builder_.op("Sub", {groups, mean(groups, {2})});
    const ValueId square = builder_.op("Mul", {x, x});
    const ValueId variance = builder_.op("Add", {mean(square, {2}), small});
    ValueId y = builder_.op("Div", {x, builder_.op("Sqrt", {variance})});
    const auto scaled = [&](ValueId v, size_t rank, ValueId result) {
      const ValueId scale = by_channel(n_.in[1], rank), bias = by_channel(n_.in[2], rank);
      return builder_.op("Add", {builder_.op("Mul", {v, scale}), bias}, result);
    };
    if (by_group) y = scaled(y, 3, kNoValue);
    const ValueId target = builder_.new_value("shape");
    ValueInfo& info = graph_.values[target].info;
    info.type = DType::kI64;
    info.ranked = true;
    info.shape = {Dim(static_cast<int64_t>(whole.size()))};
    info.content = whole;
    y = builder_.op("Reshape", {y, target}, by_group ? n_.out[0] : kNoValue);
    if (!by_group) scaled(y, whole.size(), n_.out[0]);
    return Status::ok();
  }

  Status global_pool() {
    std::vector<int64_t> axes;
    for (size_t a = 2; a < shape(n_.in[0]).size(); ++a) axes.push_back(static_cast<int64_t>(a));
    builder_.op(n_.op == "GlobalAveragePool" ? "ReduceMean" : "ReduceMax", {n_.in[0]}, n_.out[0]);
    builder_.last().opset = 13;
    builder_.last().set_ints("axes", axes);
    return Status::ok();
  }

  // Along one axis after the other: rows that are chosen, or a product with the weights of a row's neighbours.
  Status resize() {
    const std::string mode = n_.attr_string("mode", "nearest"),
                      where = n_.attr_string("coordinate_transformation_mode", "half_pixel");
    if (mode != "nearest" && mode != "linear" && mode != "cubic") return fail("mode '" + mode + "' is not supported");
    if (where == "tf_crop_and_resize")
      return fail("coordinate_transformation_mode tf_crop_and_resize is not supported");
    if (n_.attr_int("antialias", 0) != 0) return fail("antialias is not supported");
    const Shape in = shape(n_.in[0]), out = shape(n_.out[0]);
    std::vector<int64_t> axes = n_.attr_ints("axes");
    std::vector<size_t> changed;
    for (size_t a = 0; a < in.size(); ++a)
      if (in[a] != out[a]) changed.push_back(a);
    ValueId x = n_.in[0];
    for (const size_t a : changed) {
      ResizedAxis axis{in[a].value(), out[a].value(),
                       static_cast<float>(out[a].value()) / static_cast<float>(in[a].value())};
      if (!n_.has_input(3)) {
        size_t at = a;
        for (size_t i = 0; i < axes.size(); ++i)
          if ((axes[i] < 0 ? axes[i] + static_cast<int64_t>(in.size()) : axes[i]) == static_cast<int64_t>(a)) at = i;
        axis.scale = static_cast<float>(graph_.values[n_.in[2]].constant.to_f64()[at]);
      }
      // The corners of the scaled extent, or of the whole number of rows below it.
      const float scaled = axis.scale * static_cast<float>(axis.in);
      if (where == "align_corners" && std::fabs(scaled - static_cast<float>(axis.out)) > 1e-3f * scaled)
        return fail("align_corners, and a scale of " + std::to_string(axis.scale) + " makes " + std::to_string(scaled) +
                    " rows of " + std::to_string(axis.in) + ": onnx and onnxruntime align other corners then");
      if (mode == "nearest") {
        SITU_RETURN_IF_ERROR(take_nearest(axis, where, a, &x));
        continue;
      }
      // [in, out]
      constexpr int64_t kMostWeights = int64_t{1} << 26;
      if (axis.in > kMostWeights || axis.out > kMostWeights || axis.in * axis.out > kMostWeights)
        return fail("an axis of " + std::to_string(axis.in) + " becomes " + std::to_string(axis.out) + ": more than " +
                    std::to_string(kMostWeights) + " weights");
      std::vector<float> weights(static_cast<size_t>(axis.in * axis.out), 0.0f);
      for (int64_t o = 0; o < axis.out; ++o) add_weights(axis, where, mode == "cubic", o, &weights);
      multiply(axis, weights, a, in.size(), &x);
    }
    builder_.op("Identity", {x}, n_.out[0]);
    return Status::ok();
  }

  // Where output `o` lies among the rows of the operand.
  static float place_of(const ResizedAxis& axis, const std::string& where, int64_t o) {
    const float at = static_cast<float>(o), out = static_cast<float>(axis.out), in = static_cast<float>(axis.in);
    if (where == "asymmetric") return at / axis.scale;
    if (where == "align_corners") return axis.out > 1 ? at * (in - 1) / (out - 1) : 0.0f;
    if (where == "pytorch_half_pixel" && axis.out <= 1) return 0.0f;
    float offset = 0;
    if (where == "half_pixel_symmetric") offset = in / 2 * (1 - out / (axis.scale * in));
    return offset + (at + 0.5f) / axis.scale - 0.5f;
  }

  Status take_nearest(const ResizedAxis& axis, const std::string& where, size_t a, ValueId* x) {
    const std::string round = n_.attr_string("nearest_mode", "round_prefer_floor");
    std::vector<int64_t> rows;
    for (int64_t o = 0; o < axis.out; ++o) {
      const float at = place_of(axis, where, o);
      float row = std::floor(at);
      if (round == "ceil")
        row = std::ceil(at);
      else if (round == "round_prefer_floor")
        row = std::ceil(at - 0.5f);
      else if (round == "round_prefer_ceil")
        row = std::floor(at + 0.5f);
      else if (round != "floor")
        return fail("nearest_mode '" + round + "' is not supported");
      rows.push_back(std::clamp<int64_t>(static_cast<int64_t>(row), 0, axis.in - 1));
    }
    const ValueId list = builder_.constant_i64(rows);
    *x = builder_.op("Gather", {*x, list});
    builder_.last().set_int("axis", static_cast<int64_t>(a));
    return Status::ok();
  }

  void add_weights(const ResizedAxis& axis, const std::string& where, bool cubic, int64_t o,
                   std::vector<float>* weights) const {
    const auto add = [&](int64_t row, float weight) {
      (*weights)[static_cast<size_t>(std::clamp<int64_t>(row, 0, axis.in - 1) * axis.out + o)] += weight;
    };
    float at = place_of(axis, where, o);
    if (!cubic) {
      at = std::clamp(at, 0.0f, static_cast<float>(axis.in - 1));
      const float floor = std::floor(at);
      add(static_cast<int64_t>(floor), 1 - (at - floor));
      add(static_cast<int64_t>(floor) + 1, at - floor);
      return;
    }
    const float a = n_.attr_float("cubic_coeff_a", -0.75f), floor = std::floor(at), s = at - floor;
    const bool inside = n_.attr_int("exclude_outside", 0) != 0;
    float taps[4] = {((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a, ((a + 2) * s - (a + 3)) * s * s + 1,
                     ((a + 2) * (1 - s) - (a + 3)) * (1 - s) * (1 - s) + 1,
                     ((a * (2 - s) - 5 * a) * (2 - s) + 8 * a) * (2 - s) - 4 * a};
    float sum = 0;
    for (int64_t t = 0; t < 4; ++t) {
      const int64_t row = static_cast<int64_t>(floor) - 1 + t;
      if (inside && (row < 0 || row >= axis.in)) taps[t] = 0;
      sum += taps[t];
    }
    for (int64_t t = 0; t < 4; ++t) add(static_cast<int64_t>(floor) - 1 + t, inside ? taps[t] / sum : taps[t]);
  }

  void multiply(const ResizedAxis& axis, const std::vector<float>& weights, size_t a, size_t rank, ValueId* x) {
    const std::string name = "weights_" + std::to_string(a);
    if (a + 1 == rank) {
      *x = builder_.op("MatMul", {*x, floats(name, {axis.in, axis.out}, weights)});
      return;
    }
    std::vector<int64_t> perm;
    for (size_t i = 0; i < rank; ++i) perm.push_back(static_cast<int64_t>(i));
    std::swap(perm[a], perm.back());
    const ValueId moved = builder_.transpose(*x, perm);
    const ValueId made = builder_.op("MatMul", {moved, floats(name, {axis.in, axis.out}, weights)});
    *x = builder_.transpose(made, perm);
  }

  Graph& graph_;
  Builder& builder_;
  const Node& n_;
};

}  // namespace

Status expand_pictures(Graph& graph, Builder& builder, const Node& n, bool* expanded) {
  return PictureWriter(graph, builder, n).run(expanded);
}

}  // namespace situ
