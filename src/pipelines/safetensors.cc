#include "pipelines/safetensors.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/lfs_pointer.h"
#include "base/tensor.h"
#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostHeader = uint64_t{16} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a tensor: a module's matrix has some megabytes

std::string dims_text(const Json& dims) {
  std::string text;
  for (const Json& d : dims) text += (text.empty() ? "" : ", ") + shown(d);
  return "[" + text + "]";
}

DType stored_type(const std::string& name) {
  for (const auto& [known, type] :
       {std::pair{"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16}, {"F64", DType::kF64}})
    if (name == known) return type;
  return DType::kNone;
}

}  // namespace

Result<std::vector<float>> read_safetensor(const std::filesystem::path& file, const std::string& name,
                                           const std::vector<int64_t>& dims) {
  const auto wrong = [&](const std::string& what) {
    return Status::error(Code::kBadFile, file.string() + ": " + what);
  };
  if (holds_lfs_pointer(file)) return lfs_pointer_error(file);
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(file, error);
  if (error) return wrong(error.message());
  std::ifstream in(file, std::ios::binary);
  if (!in) return wrong(std::strerror(errno));
  unsigned char count[8] = {};
  uint64_t header = 0;
  if (!in.read(reinterpret_cast<char*>(count), 8)) return wrong("is no safetensors file: it has less than 8 bytes");
  for (int i = 7; i >= 0; --i) header = header << 8 | count[i];
  if (header > kMostHeader || header > size - 8)
    return wrong("is no safetensors file: a header of " + std::to_string(header) + " bytes, the file has " +
                 std::to_string(size));
  std::string text(static_cast<size_t>(header), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(header))) return wrong("its header cannot be read");
  const Result<Json> json = parse_json(text, file.string());
  if (!json.is_ok()) return json.status();
  const auto found = json->is_object() ? json->find(name) : json->end();
  if (!json->is_object() || found == json->end() || !found->is_object()) return wrong("no tensor '" + name + "'");
  const auto field = [&](const char* key) { return found->contains(key) ? (*found)[key] : Json(); };
  const Json type_name = field("dtype"), shape = field("shape"), offsets = field("data_offsets");
  const DType type = type_name.is_string() ? stored_type(type_name.get<std::string>()) : DType::kNone;
  const std::string start = "tensor '" + name + "': ";
  if (type == DType::kNone) return wrong(start + "dtype " + shown(type_name) + " should be F32, F16, BF16 or F64");
  if (shape != Json(dims))
    return wrong(start + "its shape is " + dims_text(shape) + ", " + dims_text(dims) + " was expected");
  int64_t bytes = dtype_bytes(type);
  for (const int64_t d : dims)
    if (__builtin_mul_overflow(bytes, d, &bytes) || bytes > kMostBytes) return wrong(start + "it is too large");
  const bool pair =
      offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned();
  const uint64_t data = size - 8 - header;
  const uint64_t begin = pair ? offsets[0].get<uint64_t>() : 0, end = pair ? offsets[1].get<uint64_t>() : 0;
  if (!pair || end < begin || end > data || end - begin != static_cast<uint64_t>(bytes))
    return wrong(start + "data_offsets are " + shown(offsets) + " for " + std::to_string(bytes) + " bytes of " +
                 std::to_string(data));
  const Tensor stored = Tensor::allocate(type, dims);
  in.seekg(static_cast<std::streamoff>(8 + header + begin));
  if (!in.read(reinterpret_cast<char*>(stored.view().data), static_cast<std::streamsize>(bytes)))
    return wrong(start + "it cannot be read");
  const std::vector<double> wide = stored.to_f64();
  return std::vector<float>(wide.begin(), wide.end());
}

}  // namespace situ
