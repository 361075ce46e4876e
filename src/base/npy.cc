#include "base/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/one_line.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMostHeaderBytes = 64 << 10;  // NumPy itself refuses more than 10,000

// The beginning of a text from a file, for messages.
std::string in_quotes(std::string_view text) { return "'" + std::string(text.substr(0, 60)) + "'"; }

// What a header says: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, the keys in any order.
struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// Reads the Python literals that a header has. A failed call leaves `why`.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  Result<Header> read() {
    Header header;
    if (!take('{')) return fail("a dictionary");
    while (!take('}')) {
      const std::optional<std::string> key = string();
      if (!key || !take(':')) return fail("a key");
      SITU_RETURN_IF_ERROR(value(*key, header));
      if (!take(',') && peek() != '}') return fail("',' or '}'");
    }
    if (peek() != '\0') return fail("its end");
    if (!header.descr || !header.fortran_order || !header.shape)
      return Status::error("its header should have descr, fortran_order and shape, is " + in_quotes(text_));
    return header;
  }

 private:
  Status fail(const char* wanted) const {
    return Status::error("its header should be a Python dictionary; at byte " + std::to_string(at_) + " " + wanted +
                         " is wanted, " + in_quotes(text_.substr(std::min(at_, text_.size()))) + " was found");
  }
  // The next character that is no space; '\0' at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    peek();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  // Without escapes, which no known key or type has.
  std::optional<std::string> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t begin = at_ + 1, end = text_.find(quote, begin);
    if (end == std::string_view::npos) return std::nullopt;
    at_ = end + 1;
    return std::string(text_.substr(begin, end - begin));
  }
  Status value(const std::string& key, Header& header) {
    if (key == "descr") {
      header.descr = string();
      if (!header.descr)
        return Status::error("the type of its elements should be one of a single number, is " +
                             in_quotes(text_.substr(std::min(at_, text_.size()))));
    } else if (key == "fortran_order") {
      if (take("True"))
        header.fortran_order = true;
      else if (take("False"))
        header.fortran_order = false;
      else
        return fail("True or False");
    } else if (key == "shape") {
      return shape(header);
    } else {
      return Status::error("its header has the unknown key " + in_quotes(key));
    }
    return Status::ok();
  }
  Status shape(Header& header) {
    if (!take('(')) return fail("a tuple");
    std::vector<int64_t> dims;
    while (!take(')')) {
      int64_t extent = 0;
      peek();
      const char* end = text_.data() + text_.size();
      const auto [rest, error] = std::from_chars(text_.data() + at_, end, extent);
      if (error != std::errc() || extent < 0) return fail("an extent from 0 to 9223372036854775807");
      at_ = static_cast<size_t>(rest - text_.data());
      take('L');  // of Python 2
      dims.push_back(extent);
      if (dims.size() > kMaxRank)
        return Status::error("it should have at most " + std::to_string(kMaxRank) + " dimensions, its shape is " +
                             in_quotes(text_.substr(text_.find('('))));
      if (!take(',') && peek() != ')') return fail("',' or ')'");
    }
    header.shape = std::move(dims);
    return Status::ok();
  }

  std::string_view text_;
  size_t at_ = 0;
};

Result<DType> element_type(const std::string& descr) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"|b1", DType::kBool}, {"<i4", DType::kI32}, {"<i8", DType::kI64}, {"<f2", DType::kF16}, {"<f4", DType::kF32}};
  for (const auto& [name, type] : kTypes)
    if (descr == name) return type;
  const std::string_view all = descr;
  const std::string_view kind = all.substr(std::min<size_t>(1, all.size()));
  const std::string why = kind.starts_with("O")                        ? " (pickled objects)"
                          : descr.starts_with(">") && kind.size() == 2 ? " (big endian)"
                                                                       : "";
  return Status::error(
      "its elements should be bool '|b1', int32 '<i4', int64 '<i8', float16 '<f2' or float32 '<f4', are " +
      in_quotes(descr) + why);
}

Result<int64_t> byte_count(const std::vector<int64_t>& dims, DType type) {
  int64_t bytes = dtype_bits(type) / 8;
  std::string shape;
  for (const int64_t d : dims) shape += (shape.empty() ? "" : ", ") + std::to_string(d);
  // Zero extents must not hide an overflow: strides are products too.
  for (const int64_t d : dims)
    if (d > 0 && bytes > std::numeric_limits<int64_t>::max() / d)
      return Status::error("an array [" + shape + "] has more elements than any memory");
    else if (d > 0)
      bytes *= d;
  return std::find(dims.begin(), dims.end(), 0) != dims.end() ? 0 : bytes;
}

Result<Tensor> read(std::ifstream& file, uint64_t size) {
  char start[12] = {};
  const size_t fixed = 8;  // magic, version
  if (!file.read(start, fixed) || std::string_view(start, kMagic.size()) != kMagic)
    return Status::error("should be a .npy file, which begins with \\x93NUMPY");
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0)
    return Status::error("its format should be 1.0, 2.0 or 3.0, is " + std::to_string(major & 255) + "." +
                         std::to_string(minor & 255));
  const size_t length_bytes = major == 1 ? 2 : 4;
  uint32_t length = 0;
  if (!file.read(start + fixed, static_cast<std::streamsize>(length_bytes)))
    return Status::error("it ends in its header");
  for (size_t i = 0; i < length_bytes; ++i) length |= uint32_t{static_cast<unsigned char>(start[fixed + i])} << (8 * i);
  if (length > kMostHeaderBytes)
    return Status::error("its header should have at most " + std::to_string(kMostHeaderBytes) + " bytes, has " +
                         std::to_string(length));
  std::string text(length, '\0');
  if (!file.read(text.data(), length)) return Status::error("it ends in its header");

  Result<Header> header = HeaderReader(text).read();
  if (!header.is_ok()) return header.status();
  Result<DType> type = element_type(*header->descr);
  if (!type.is_ok()) return type.status();
  if (*header->fortran_order)
    return Status::error("its elements should be in C order (fortran_order False), are in Fortran order");
  Result<int64_t> bytes = byte_count(*header->shape, *type);
  if (!bytes.is_ok()) return bytes.status();
  const uint64_t left = size - std::min<uint64_t>(size, fixed + length_bytes + length);
  if (left != static_cast<uint64_t>(*bytes))
    return Status::error("its shape asks for " + std::to_string(*bytes) + " bytes of elements, it has " +
                         std::to_string(left));
  Tensor tensor = Tensor::allocate(*type, *header->shape);
  char* data = reinterpret_cast<char*>(tensor.view().data);
  if (*bytes > 0 && !file.read(data, *bytes)) return Status::error("it cannot be read to its end");
  if (*type == DType::kBool)
    for (int64_t i = 0; i < *bytes; ++i)
      if (data[i] != 0 && data[i] != 1)
        return Status::error("element " + std::to_string(i) + " should be a bool, 0 or 1, is " +
                             std::to_string(static_cast<unsigned char>(data[i])));
  return tensor;
}

}  // namespace

Result<Tensor> read_npy(const fs::path& path) {
  std::error_code error;
  const bool regular = fs::is_regular_file(path, error);
  if (error) return Status::error(path.string() + ": " + error.message());
  if (!regular) return Status::error(path.string() + ": not a regular file");
  const uint64_t size = fs::file_size(path, error);
  if (error) return Status::error(path.string() + ": " + error.message());
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::error(path.string() + ": cannot be read: " + std::strerror(errno));
  Result<Tensor> tensor = read(file, size);
  if (!tensor.is_ok()) return one_line(tensor.status().with_context(path.string()));
  return tensor;
}

}  // namespace situ
