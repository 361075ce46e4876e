#include "vision/jpeg.h"

#include <jpeglib.h>
// After jpeglib.h.
#include <jerror.h>

#include <algorithm>
#include <csetjmp>
#include <limits>
#include <memory>
#include <string_view>

namespace situ {
namespace {

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr std::string_view kExifName{"Exif\0\0", 6}, kXmpName{"http://ns.adobe.com/xap/1.0/\0", 29};
// A progressive jpeg has some ten scans. Each passes over all of the image, however few bytes it has.
constexpr int kMostScans = 100;
constexpr size_t kBufferBytes = 1 << 16;
// In front of the pixels: EXIF, profiles, previews. They are kept, so their number is limited.
constexpr int64_t kMostHeaderBytes = 64 << 20;
// libjpeg asks for memory in parts; beside the image it may have what the limit on pixels gives.
constexpr int64_t kBytesPerPixel = 8;
// Of any jpeg.
constexpr int64_t kMostPixels = int64_t{1} << 32;

enum class Failure { kNone, kCutOff, kLibrary, kHeader, kScans, kMemory };

// What libjpeg calls back. A callback that fails jumps back to `escape`; the frames in between are libjpeg's and C.
struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape;
  Failure failure = Failure::kNone;
  char message[JMSG_LENGTH_MAX] = "";
  std::FILE* file = nullptr;
  int64_t may_read = kMostHeaderBytes;
  JOCTET buffer[kBufferBytes];
};

Decoder& decoder_of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }

[[noreturn]] void fail(Decoder& decoder, Failure failure) {
  decoder.failure = failure;
  std::longjmp(decoder.escape, 1);
}

void on_error(j_common_ptr info) {
  Decoder& decoder = decoder_of(info);
  info->err->format_message(info, decoder.message);
  // The first one: more than max_memory_to_use.
  const bool memory = info->err->msg_code == JERR_NO_BACKING_STORE || info->err->msg_code == JERR_OUT_OF_MEMORY;
  fail(decoder, memory ? Failure::kMemory : Failure::kLibrary);
}

// Warnings (bytes between markers, restarts out of order) leave a picture, which Pillow takes too.
void on_message(j_common_ptr, int) {}
void on_output(j_common_ptr) {}

void on_progress(j_common_ptr info) {
  Decoder& decoder = decoder_of(info);
  if (decoder.info.input_scan_number > kMostScans) fail(decoder, Failure::kScans);
}

void begin_source(j_decompress_ptr) {}
void end_source(j_decompress_ptr) {}

boolean fill_source(j_decompress_ptr info) {
  Decoder& decoder = decoder_of(reinterpret_cast<j_common_ptr>(info));
  const size_t read = std::fread(decoder.buffer, 1, kBufferBytes, decoder.file);
  if (read == 0) fail(decoder, Failure::kCutOff);
  decoder.may_read -= static_cast<int64_t>(read);
  if (decoder.may_read < 0) fail(decoder, Failure::kHeader);
  decoder.source.next_input_byte = decoder.buffer;
  decoder.source.bytes_in_buffer = read;
  return TRUE;
}

void skip_source(j_decompress_ptr info, long count) {
  Decoder& decoder = decoder_of(reinterpret_cast<j_common_ptr>(info));
  while (count > 0 && static_cast<size_t>(count) > decoder.source.bytes_in_buffer) {
    count -= static_cast<long>(decoder.source.bytes_in_buffer);
    fill_source(info);
  }
  if (count <= 0) return;
  decoder.source.next_input_byte += count;
  decoder.source.bytes_in_buffer -= static_cast<size_t>(count);
}

// Each of the following three is one call under setjmp, with no object of C++ between it and libjpeg. They return false
// after a failure.
bool read_header(Decoder& decoder) {
  if (setjmp(decoder.escape)) return false;
  jpeg_create_decompress(&decoder.info);
  decoder.info.src = &decoder.source;
  decoder.info.progress = &decoder.progress;
  jpeg_save_markers(&decoder.info, kExifMarker, 0xffff);
  jpeg_read_header(&decoder.info, TRUE);
  return true;
}

// Grey, RGB or CMYK, as Pillow asks for.
bool start(Decoder& decoder, int64_t memory) {
  if (setjmp(decoder.escape)) return false;
  switch (decoder.info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      decoder.info.out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      decoder.info.out_color_space = JCS_CMYK;
      break;
    default:
      decoder.info.out_color_space = JCS_RGB;
  }
  decoder.may_read = std::numeric_limits<int64_t>::max();
  jpeg_save_markers(&decoder.info, kExifMarker, 0);
  decoder.info.dct_method = JDCT_ISLOW;
  decoder.info.mem->max_memory_to_use = static_cast<long>(memory);
  jpeg_start_decompress(&decoder.info);
  return true;
}

// One row of samples [width, components].
bool read_row(Decoder& decoder, JSAMPLE* row) {
  if (setjmp(decoder.escape)) return false;
  jpeg_read_scanlines(&decoder.info, &row, 1);
  return true;
}

// Pillow's MULDIV255: a * b / 255, rounded.
int muldiv255(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

// in [width, components] to rgb [width, 3]. CMYK is stored inverted, as Adobe does it (and Pillow takes it).
void write_rgb(const JSAMPLE* in, int components, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, in += components, rgb += 3) {
    if (components == 1) {
      rgb[0] = rgb[1] = rgb[2] = in[0];
    } else if (components == 3) {
      rgb[0] = in[0], rgb[1] = in[1], rgb[2] = in[2];
    } else {
      const int white = in[3];  // 255 - black
      for (int c = 0; c < 3; ++c) {
        const int value = white - muldiv255(255 - in[c], white);
        rgb[c] = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
      }
    }
  }
}

Status status_of(const Decoder& decoder, const ImageLimits& limits) {
  switch (decoder.failure) {
    case Failure::kCutOff:
      return Status::error(Code::kBadFile, "is cut off: the image's data ends too early");
    case Failure::kHeader:
      return Status::error(Code::kBadFile, "is damaged: more than " + std::to_string(kMostHeaderBytes >> 20) +
                                               " MiB stand in front of the pixels");
    case Failure::kScans:
      return Status::error(Code::kBadFile, "is a jpeg of more than " + std::to_string(kMostScans) + " scans");
    case Failure::kMemory:
      return Status::error(Code::kInvalidArgument, "is a jpeg of several scans of " +
                                                       std::to_string(decoder.info.image_width) + " x " +
                                                       std::to_string(decoder.info.image_height) +
                                                       " pixels, which takes more memory than the " + "limit of " +
                                                       std::to_string(limits.max_pixels) + " pixels allows");
    default:
      return Status::error(Code::kBadFile, "is damaged: " + std::string(decoder.message));
  }
}

void take_metadata(const jpeg_decompress_struct& info, Jpeg* jpeg) {
  for (jpeg_saved_marker_ptr marker = info.marker_list; marker; marker = marker->next) {
    if (marker->marker != kExifMarker) continue;
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (data.starts_with(kExifName)) {
      // Long ones go on in the next marker.
      jpeg->exif.insert(jpeg->exif.end(), data.begin() + kExifName.size(), data.end());
    } else if (data.starts_with(kXmpName)) {
      jpeg->xmp = data.substr(kXmpName.size());
    }
  }
}

Result<Jpeg> read(Decoder& decoder, const ImageLimits& limits) {
  if (!read_header(decoder)) return status_of(decoder, limits);
  const int width = static_cast<int>(decoder.info.image_width), height = static_cast<int>(decoder.info.image_height);
  SITU_RETURN_IF_ERROR(check_pixels(width, height, limits));
  // Beside the image of 3 bytes a pixel.
  const int64_t most = kBytesPerPixel * std::min(limits.max_pixels, kMostPixels);
  const int64_t image = static_cast<int64_t>(width) * height * 3;
  if (!start(decoder, most - image)) return status_of(decoder, limits);
  Jpeg jpeg;
  take_metadata(decoder.info, &jpeg);
  jpeg.image = RgbImage(width, height);
  const int components = decoder.info.output_components;
  std::vector<JSAMPLE> row(static_cast<size_t>(width) * static_cast<size_t>(components));
  for (int y = 0; y < height; ++y) {
    if (!read_row(decoder, row.data())) return status_of(decoder, limits);
    write_rgb(row.data(), components, width, jpeg.image.row(y));
  }
  return jpeg;
}

// What `read` makes of a decoder at the file's place.
template <typename Read>
auto with_decoder(std::FILE* file, Read&& read) {
  const auto decoder = std::make_unique<Decoder>();
  decoder->file = file;
  decoder->info.client_data = decoder.get();
  decoder->info.err = jpeg_std_error(&decoder->errors);
  decoder->errors.error_exit = on_error;
  decoder->errors.emit_message = on_message;
  decoder->errors.output_message = on_output;
  decoder->source.init_source = begin_source;
  decoder->source.fill_input_buffer = fill_source;
  decoder->source.skip_input_data = skip_source;
  decoder->source.resync_to_restart = jpeg_resync_to_restart;
  decoder->source.term_source = end_source;
  decoder->progress.progress_monitor = on_progress;
  auto result = read(*decoder);
  jpeg_destroy_decompress(&decoder->info);
  return result;
}

}  // namespace

Result<Jpeg> read_jpeg(std::FILE* file, const ImageLimits& limits) {
  return with_decoder(file, [&](Decoder& decoder) { return read(decoder, limits); });
}

Result<ImageSize> read_jpeg_size(std::FILE* file) {
  return with_decoder(file, [](Decoder& decoder) -> Result<ImageSize> {
    if (!read_header(decoder)) return status_of(decoder, {});
    return ImageSize{decoder.info.image_width, decoder.info.image_height};
  });
}

}  // namespace situ
