#include "onnx/other_format.h"

#include <algorithm>

namespace situ::onnx {
namespace {

constexpr size_t kLookedAt = 4096;

// UTF-8, without bytes that texts do not have; its last character may be cut.
bool is_text(std::string_view bytes) {
  int behind = 0;  // bytes of a character that follow its first
  for (const char c : bytes) {
    const unsigned char u = static_cast<unsigned char>(c);
    const bool continues = u >= 0x80 && u < 0xc0, plain = u < 0x80;
    if (continues != (behind > 0) || u >= 0xf8) return false;
    if (plain && u != 0x1b && (u < ' ' || u == 0x7f) && u != '\t' && u != '\n' && u != '\f' && u != '\r') return false;
    behind = continues ? behind - 1 : plain ? 0 : u >= 0xf0 ? 3 : u >= 0xe0 ? 2 : 1;
  }
  return true;
}

std::string text_kind(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  const char first = begin == std::string_view::npos ? ' ' : text[begin];
  if (first == '{' || first == '[') return "a text file (JSON)";
  if (first == '<') return "a text file (HTML or XML, as a download that failed leaves it)";
  return "a text file";
}

}  // namespace

std::string other_format(std::string_view bytes) {
  bytes = bytes.substr(0, kLookedAt);
  const auto at = [&](size_t offset, std::string_view mark) {
    return bytes.substr(std::min(offset, bytes.size())).starts_with(mark);
  };
  if (at(0, "GGUF")) return "a GGUF file";
  if (at(0, "PK\x03\x04")) return "a ZIP archive, as PyTorch's checkpoints are";
  if (at(0, "\x1f\x8b")) return "a gzip archive";
  if (at(4, "ORTM")) return "a model in onnxruntime's own format (ORT)";
  if (at(4, "TFL3")) return "a TensorFlow Lite model";
  if (at(8, "{\"")) return "weights in safetensors";
  if (at(0, "\xff\xfe") || at(0, "\xfe\xff")) return "a text file (UTF-16)";
  return !bytes.empty() && is_text(bytes) ? text_kind(bytes) : "";
}

}  // namespace situ::onnx
