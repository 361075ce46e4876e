// ONNX's node tests by the interpreter and by placed programs, for tests/node_tests.py:  node_cases FOLDER
//
// FOLDER/NAME.onnx is a model, FOLDER/NAME.data its inputs and outputs: a model whose initialisers are called "input.N"
// and "output.N". Prints a line of JSON for each: {name, interpreter, placed, detail}, both "passed", "refused" or
// "failed", placed also "data" (extents are computed from data) and "constant" (nothing is left to run). Inputs that
// shapes depend on become constants of the graph: those of integers, else all but the first.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "onnx/importer.h"
#include "passes/module/specialise.h"
#include "passes/pack/pack_store.h"
#include "runtime/compile.h"
#include "runtime/program.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;
using Tensors = std::vector<Tensor>;

constexpr double kRelative = 1e-3, kAbsolute = 1e-7;  // as onnx's own runner has them
// The last two bits of these: onnx rounds after other steps.
constexpr double kOfHalf = 4e-3, kOfBFloat = 1.6e-2;

struct Case {
  Graph graph;
  Tensors inputs, outputs;  // by number; not present: left out
};

Tensors numbered(const Graph& data, const std::string& prefix, size_t count) {
  Tensors list(count);
  for (const Value& v : data.values)
    if (v.name.starts_with(prefix)) list.at(std::stoul(v.name.substr(prefix.size()))) = v.constant;
  return list;
}

// "" or the first element that differs. `of_program`: programs widen halves, and lay rows out as they please.
std::string difference(const Tensor& got, const Tensor& want, bool of_program) {
  const bool widened = of_program && got.type() == DType::kF32 && dtype_bytes(want.type()) == 2;
  if (got.type() != want.type() && !(widened && dtype_is_float(want.type())))
    return std::string("type ") + dtype_name(got.type()) + ", not " + dtype_name(want.type());
  if (of_program ? got.count() != want.count() : got.dims() != want.dims()) return "other extents";
  const bool real = dtype_is_float(want.type());
  const double relative = want.type() == DType::kBF16 ? kOfBFloat : want.type() == DType::kF16 ? kOfHalf : kRelative;
  const std::vector<double> a = real ? got.to_f64() : std::vector<double>(), b = real ? want.to_f64() : a;
  const std::vector<int64_t> c = real ? std::vector<int64_t>() : got.to_i64(), d = real ? c : want.to_i64();
  for (size_t i = 0; i < b.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                      std::fabs(a[i] - b[i]) <= kAbsolute + relative * std::fabs(b[i]);
    if (!same) return "element " + std::to_string(i) + " is " + std::to_string(a[i]) + ", not " + std::to_string(b[i]);
  }
  for (size_t i = 0; i < d.size(); ++i)
    if (c[i] != d[i])
      return "element " + std::to_string(i) + " is " + std::to_string(c[i]) + ", not " + std::to_string(d[i]);
  return "";
}

class Runner {
 public:
  Runner() : pool_(1), evaluator_(pool_), executor_(pool_) {}

  Json run(const Case& c) {
    std::string detail;
    Json j;
    j["interpreter"] = by_interpreter(c, &detail);
    if (!detail.empty()) j["detail"] = detail;
    detail.clear();
    j["placed"] = placed(c, &detail);
    if (!detail.empty()) j["placed_detail"] = detail;
    return j;
  }

 private:
  enum class Feed { kAll, kFloats, kFirst };  // what is fed; the rest is constant
  static constexpr Feed kFeeds[] = {Feed::kAll, Feed::kFloats, Feed::kFirst};

  // The graph with the extents of its inputs.
  static Graph with_inputs(const Case& c, Feed feed) {
    Graph g = c.graph;
    std::vector<ValueId> fed;
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      Value& v = g.values[g.inputs[i]];
      v.info = info_of(c.inputs[i]);
      v.info.content.reset();
      if (feed == Feed::kAll || (feed == Feed::kFloats && dtype_is_float(v.info.type)) || i == 0) {
        fed.push_back(g.inputs[i]);
      } else {
        v.constant = c.inputs[i];
        v.info = info_of(v.constant);
      }
    }
    g.inputs = fed;
    g.rebuild_links();
    return g;
  }
  static GraphUse use_of(const Graph& g) {
    GraphUse use{Phase::kFirst, true, {}, {}};
    for (const ValueId v : g.inputs) use.fed.insert(g.values[v].name);
    return use;
  }
  static std::map<std::string, Tensor> by_name(const Case& c) {
    std::map<std::string, Tensor> tensors;
    for (size_t i = 0; i < c.graph.inputs.size(); ++i) tensors[c.graph.values[c.graph.inputs[i]].name] = c.inputs[i];
    return tensors;
  }
  std::map<ValueId, Tensor> feeds(const Graph& g, const Case& c) const {
    std::map<ValueId, Tensor> fed;
    const std::map<std::string, Tensor> tensors = by_name(c);
    for (size_t v = 0; v < g.values.size(); ++v) {
      const Value& value = g.values[v];
      if (value.producer >= 0 || value.constant.present()) continue;
      if (const auto t = tensors.find(value.name); t != tensors.end())
        fed[static_cast<ValueId>(v)] = t->second;
      else if (value.info.content)  // what a host makes
        fed[static_cast<ValueId>(v)] = Tensor::vector_i64(shape_values(*value.info.content));
    }
    return fed;
  }

  // An operator that is written out by a pass has no kernel of its own.
  static bool has_kernels(const Graph& g) {
    return std::all_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
      return n.def->prepare || n.def->placement == Placement::kView || n.def->placement == Placement::kConcat ||
             (n.def->placement == Placement::kControl && std::all_of(n.attrs.begin(), n.attrs.end(), [](const auto& a) {
                return !a.second.graph || has_kernels(*a.second.graph);
              }));
    });
  }

  Result<Tensors> interpret(const Case& c) {
    Graph g = c.graph;
    SITU_RETURN_IF_ERROR(resolve_ops(g, NodesOf::kFile));
    if (has_kernels(g)) {
      for (Node& n : g.nodes)
        if (const Status kinds = n.check_attribute_kinds(); !kinds.is_ok()) return kinds;
      return evaluator_.graph(g, feeds(g, c));
    }
    Status last;
    for (const Feed feed : kFeeds) {
      const Graph fed = with_inputs(c, feed);
      const Result<Compiled> compiled = compile(fed, {}, nullptr, use_of(fed));
      if (compiled.is_ok()) return evaluator_.graph(compiled->graph, feeds(compiled->graph, c));
      last = compiled.status();
    }
    return last;
  }

  std::string by_interpreter(const Case& c, std::string* detail) {
    const Result<Tensors> made = interpret(c);
    *detail = made.status().message();
    if (!made.is_ok()) return "refused";
    for (size_t i = 0; i < c.outputs.size() && detail->empty(); ++i)
      if (c.outputs[i].present()) *detail = difference((*made)[i], c.outputs[i], false);
    return detail->empty() ? "passed" : "failed";
  }

  std::string placed(const Case& c, std::string* detail) {
    std::string verdict = "constant";
    for (size_t i = 0; i < c.outputs.size(); ++i) {
      if (!c.outputs[i].present()) continue;
      Status last;
      std::string of_output;
      for (const Feed feed : kFeeds) {
        Graph g = with_inputs(c, feed);
        slice(g, {g.outputs[i]});
        g.rebuild_links();
        const Result<std::string> done = run_placed(g, c, c.outputs[i], detail);
        if (done.is_ok()) {
          of_output = *done;
          break;
        }
        last = done.status();
      }
      if (of_output.empty()) {
        *detail = last.message();
        return "refused";
      }
      if (of_output == "failed" || of_output == "data") return of_output;
      if (of_output == "passed") verdict = of_output;
    }
    return verdict;
  }

  Result<std::string> run_placed(const Graph& g, const Case& c, const Tensor& want, std::string* detail) {
    PackStore packs(pool_);
    GraphUse use = use_of(g);
    use.rows = g.values[g.outputs[0]].name;
    const Result<Compiled> compiled = compile(g, {}, &packs, use);
    if (!compiled.is_ok()) return compiled.status();
    const Value& made = compiled->graph.values[compiled->binding.rows];
    if (made.producer < 0) return std::string("constant");
    if (!made.info.ranked || !shape_is_const(made.info.shape)) return std::string("data");
    Result<Plan> plan = make_plan(compiled->graph, compiled->binding, {1, 1, 1, 1});
    if (!plan.is_ok()) return plan.status();
    std::vector<std::byte> memory(static_cast<size_t>(plan->arena_bytes + plan->io_bytes) + 128);
    std::byte* arena = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    const Regions regions{arena, arena + (plan->arena_bytes + 63) / 64 * 64, nullptr};
    Result<std::unique_ptr<Program>> program = Program::create(compiled->graph, compiled->binding, *plan,
                                                               {"", {}, "a test takes one step"}, regions, executor_);
    if (!program.is_ok()) return program.status();
    const std::map<std::string, Tensor> tensors = by_name(c);
    std::vector<std::byte*> fed;
    for (const Root& r : plan->ports)
      if (const Value& v = compiled->graph.values[r.value]; v.producer < 0)
        fed.push_back(tensors.at(v.name).view().data);
    const Tensor got = Tensor::allocate(made.info.type, shape_values(made.info.shape));
    Segment segment;
    segment.count = segment.keys = 1;
    StepInput step{{&segment, 1}};
    step.tensors = fed;
    step.rows = got.view().data;
    Ledger ledger;
    SITU_RETURN_IF_ERROR((*program)->run(step, ledger));
    *detail = difference(got, want, true);
    return std::string(detail->empty() ? "passed" : "failed");
  }

  ThreadPool pool_;
  Evaluator evaluator_;
  Executor executor_;
};

Json run_file(Runner& runner, const std::filesystem::path& file) {
  Json j{{"name", file.stem().string()}};
  const Result<ImportedModel> model = import_onnx(file);
  const Result<ImportedModel> data = import_onnx(std::filesystem::path(file).replace_extension(".data"));
  for (const Result<ImportedModel>* each : {&model, &data}) {
    if (each->is_ok()) continue;
    j["interpreter"] = j["placed"] = "refused";
    j["detail"] = each->status().message();
    return j;
  }
  Case c{model->graph, numbered(data->graph, "input.", model->graph.inputs.size()),
         numbered(data->graph, "output.", model->graph.outputs.size())};
  try {
    j.update(runner.run(c));
  } catch (const std::exception& e) {  // shapes without an end, an operator on constants that fails
    j["interpreter"] = j["placed"] = "refused";
    j["detail"] = e.what();
  }
  return j;
}

}  // namespace
}  // namespace situ

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    if (entry.path().extension() == ".onnx") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  situ::Runner runner;
  for (const auto& file : files)
    std::cout << situ::run_file(runner, file).dump(-1, ' ', false, situ::Json::error_handler_t::replace) << std::endl;
  return 0;
}
