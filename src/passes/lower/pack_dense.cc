// MatMul and Gemm with a constant float matrix become situ.DenseMatMul on the same numbers in panels of columns: a
// thread reads one stream instead of a piece of every row, and a prompt's tiles are not packed at each step.
#include <unistd.h>

#include <map>

#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"
#include "passes/pack/pack_store.h"

namespace situ {
namespace {

constexpr int64_t kMaxDepth = 65536;  // ops/matmul.cc
// Packed weights are memory of the process, which the system cannot drop and read again from the file: not for models
// that fill a large part of it.
constexpr int64_t kMemoryShare = 3;

struct Matrix {
  ValueId weights = kNoValue, bias = kNoValue;
  bool transposed = false;  // weights are [N, K]
  int64_t k = 0, n = 0;
};

bool matrix_of(const Graph& graph, const Node& node, Matrix* m) {
  const bool gemm = node.is("Gemm");
  if ((!gemm && !node.is("MatMul")) || node.in.size() < 2 || node.in[0] == kNoValue || node.in[1] == kNoValue)
    return false;
  if (gemm && (node.attr_int("transA", 0) != 0 || node.attr_float("alpha", 1) != 1 || node.attr_float("beta", 1) != 1))
    return false;
  m->weights = node.in[1];
  m->transposed = gemm && node.attr_int("transB", 0) != 0;
  const int p = graph.values[m->weights].producer;
  if (!graph.values[m->weights].constant.present() && p >= 0 && graph.nodes[p].is("Transpose")) {
    const std::vector<int64_t> perm = graph.nodes[p].permutation(2);
    if (perm.size() != 2) return false;
    if (perm[0] == 1) m->transposed = !m->transposed;
    m->weights = graph.nodes[p].in[0];
  }
  const Tensor& w = graph.values[m->weights].constant;
  const ValueInfo &x = graph.values[node.in[0]].info, &y = graph.values[node.out[0]].info;
  auto real = [](DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; };
  if (!w.present() || w.rank() != 2 || !w.contiguous() || !real(w.type()) || !real(x.type) || x.shape.size() < 2 ||
      y.type != x.type)
    return false;
  m->k = w.dims()[m->transposed ? 1 : 0];
  m->n = w.dims()[m->transposed ? 0 : 1];
  if (node.has_input(2)) m->bias = node.in[2];
  const bool bias_fits = m->bias == kNoValue || (real(graph.values[m->bias].info.type) &&
                                                 graph.values[m->bias].info.shape == Shape{Dim(m->n)});
  return bias_fits && m->k >= 1 && m->k <= kMaxDepth && m->n >= 1 && !graph.values[node.in[0]].constant.present();
}

// Readers of a matrix, through transpositions that nothing else reads.
size_t products_behind(const Graph& graph, const std::vector<std::vector<std::pair<int, int>>>& users, ValueId v) {
  size_t count = 0;
  for (std::vector<ValueId> open{v}; !open.empty();) {
    const ValueId x = open.back();
    open.pop_back();
    for (const auto& [n, i] : users[x]) {
      const Node& reader = graph.nodes[n];
      if (reader.is("Transpose") && !graph.is_output(reader.out[0]))
        open.push_back(reader.out[0]);
      else
        ++count;
    }
  }
  return count;
}

}  // namespace

Status pack_dense(PassContext& context) {
  if (!context.packs) return Status::ok();
  Graph& graph = context.graph;
  std::vector<std::pair<size_t, Matrix>> found;
  int64_t bytes = 0;  // in the file
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (Matrix m; matrix_of(graph, graph.nodes[i], &m)) {
      found.emplace_back(i, m);
      bytes += graph.values[m.weights].constant.bytes();
    }
  if (found.empty()) return Status::ok();
  if (bytes > static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / kMemoryShare) {
    context.note("weights not packed", "", std::to_string(bytes) + " bytes are more than a third of memory");
    return Status::ok();
  }
  int64_t written = 0, narrowed = 0;
  const auto users = graph.users();
  std::map<ValueId, size_t> left;  // products that are still to be laid out, by weights that nothing else reads
  for (const auto& [i, m] : found) ++left[m.weights];
  for (auto& [weights, products] : left)
    if (graph.is_output(weights) || products_behind(graph, users, weights) != products) products = 0;
  for (auto& [i, m] : found) {
    Node& n = graph.nodes[i];
    Result<Tensor> packed = context.packs->pack_dense(graph.values[m.weights].constant, m.k, m.n, m.transposed);
    if (!packed.is_ok()) return packed.status().with_context(n.label());
    written += packed->bytes();
    narrowed += packed->type() != graph.values[m.weights].constant.type();
    if (size_t& products = left[m.weights]; products > 0 && --products == 0)
      context.packs->let_go(&graph.values[m.weights].constant);
    n.in = {n.in[0], graph.add_constant(n.name + "/packed", *packed)};
    if (m.bias != kNoValue) n.in.push_back(m.bias);
    n.domain = "situ";
    n.op = "DenseMatMul";
    n.opset = 1;
    n.def = find_op("situ", "DenseMatMul", 1);
    n.set_int("K", m.k);
    n.set_int("N", m.n);
  }
  context.note(
      "packed weights", "",
      std::to_string(found.size()) + " float matrices, " + std::to_string(written) + " bytes" +
          (narrowed > 0 ? ", " + std::to_string(narrowed) + " of them in 16 bits that hold every number exactly" : ""));
  graph.remove_dead_nodes();
  graph.drop_unread_constants();
  return Status::ok();
}

}  // namespace situ
