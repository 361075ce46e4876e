#include "onnx/importer.h"

#include <new>

#include "base/lfs_pointer.h"
#include "base/one_line.h"
#include "onnx/external_data.h"
#include "onnx/graph_builder.h"
#include "onnx/limits.h"
#include "onnx/model_proto.h"
#include "onnx/other_format.h"
#include "onnx/tensor_proto.h"

namespace situ {
namespace {

void check_model(const onnx::ModelProto& model) {
  if (!model.graph) throw onnx::ImportError("not an ONNX model: it holds no graph");
  if (model.ir_version < 3)
    throw onnx::ImportError("IR version " + std::to_string(model.ir_version) + " is not supported, 3 is the first",
                            Code::kUnsupportedModel);
}

// Throws ImportError.
onnx::ModelProto parse(std::string_view bytes) {
  try {
    onnx::ModelProto proto = onnx::parse_model(bytes);
    check_model(proto);
    return proto;
  } catch (const onnx::ImportError& e) {
    if (const std::string format = onnx::other_format(bytes); !format.empty())
      throw onnx::ImportError(format + ", not an ONNX model (" + e.message() +
                              "); give an .onnx file, or the folder that holds it");
    throw;
  }
}

// What operators mean may change with every opset of ONNX itself. Throws ImportError.
void check_opset(const onnx::Opsets& opsets, const std::string& of) {
  const auto it = opsets.find("");
  if (it == opsets.end() || (it->second >= onnx::kFirstOpset && it->second <= onnx::kLastOpset)) return;
  const std::string wrong = "opset " + std::to_string(it->second) + " of ai.onnx" + of + " is not supported, " +
                            std::to_string(onnx::kFirstOpset) + " to " + std::to_string(onnx::kLastOpset) + " are";
  throw onnx::ImportError(wrong, Code::kUnsupportedModel,
                          {{.kind = Reason::Kind::kOpset,
                            .op = "",
                            .domain = "ai.onnx",
                            .opset = it->second,
                            .detail = wrong,
                            .advice = "export with an opset from " + std::to_string(onnx::kFirstOpset) + " to " +
                                      std::to_string(onnx::kLastWholeOpset)}});
}

// `changed`: as import_onnx. Throws ImportError.
ImportedModel read_model(const std::filesystem::path& path, Status* changed, IsOperator is_operator) {
  Result<std::shared_ptr<const onnx::MappedFile>> opened = onnx::MappedFile::open(path);
  if (!opened.is_ok()) throw onnx::ImportError(opened.status().message(), opened.status().code());
  const std::shared_ptr<const MappedBytes> file = *opened;
  const std::string_view bytes(reinterpret_cast<const char*>(file->data), static_cast<size_t>(file->size));
  if (bytes.empty()) throw onnx::ImportError("the file is empty");
  if (is_lfs_pointer(bytes)) throw onnx::ImportError("a git-lfs pointer, the model itself has not been downloaded");

  const onnx::ModelProto proto = parse(bytes);
  check_opset(proto.opsets, "");
  for (const onnx::FunctionProto& f : proto.functions)
    check_opset(f.opsets, " in function '" + std::string(f.name) + "'");
  onnx::ExternalFiles external(path);
  onnx::TensorReader tensors(file, external);
  ImportedModel model;
  onnx::GraphBuilder builder(proto, tensors, is_operator);
  model.graph = builder.build();
  const Status refused = builder.refuse_changed();
  if (changed)
    *changed = refused.is_ok() ? refused : refused.with_context("'" + path.string() + "'");
  else if (!refused.is_ok())
    throw onnx::ImportError(refused.message(), refused.code(), refused.reasons());
  model.producer = proto.producer_name.empty() ? "an unnamed producer" : std::string(proto.producer_name);
  if (!proto.producer_version.empty()) model.producer += " " + std::string(proto.producer_version);
  model.ir_version = proto.ir_version;
  model.opsets.insert(proto.opsets.begin(), proto.opsets.end());
  model.files.push_back(file);
  model.files.insert(model.files.end(), external.files().begin(), external.files().end());
  model.weight_bytes = tensors.total_bytes();
  model.realigned_bytes = tensors.realigned_bytes();
  return model;
}

}  // namespace

Result<ImportedModel> import_onnx(const std::filesystem::path& path, Status* changed, IsOperator is_operator) {
  const std::string name = "'" + path.string() + "': ";
  try {
    return read_model(path, changed, is_operator);
  } catch (const onnx::ImportError& e) {
    const Status error = Status::error(e.code(), one_line(name + e.message()));
    if (e.code() == Code::kNoRoom) return error;  // of the machine, not of the model
    return e.reasons().empty() ? error.or_reason(Reason::Kind::kFile) : error.because(e.reasons());
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kNoRoom, one_line(name + "not enough memory"));
  } catch (const std::exception& e) {  // of the standard library, such as a file system error
    return Status::error(Code::kBadFile, one_line(name + e.what()));
  }
}

}  // namespace situ
