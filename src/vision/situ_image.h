/* The C border between Situ and the Rust library in rust/ (png, webp, gif).
 *
 * A function that returns int gives 0 for success, or a situ_image_code, and then writes the reason to `error`, which
 * may be null. No call prints, exits or unwinds. A reader is used by one thread at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct situ_image_reader situ_image_reader;

enum situ_image_code {
  SITU_IMAGE_BAD_FILE = 1,
  SITU_IMAGE_NOT_FOUND = 2,
  SITU_IMAGE_UNSUPPORTED = 3,
  SITU_IMAGE_ARGUMENT = 4,
  SITU_IMAGE_INTERNAL = 5,
};

/* UTF-8 with a terminator. */
typedef struct {
  char text[512];
} situ_image_text;

enum situ_image_format { SITU_IMAGE_PNG = 0, SITU_IMAGE_WEBP = 1, SITU_IMAGE_GIF = 2 };

typedef struct {
  uint32_t width, height;
} situ_image_size;

/* What a file says about the image beside its pixels; null where it says nothing. Valid as long as the reader. */
typedef struct {
  const uint8_t* exif; /* a TIFF header and what follows it */
  size_t exif_size;
  const uint8_t* xmp; /* XML */
  size_t xmp_size;
} situ_image_metadata;

/* Reads the header alone. The bytes must live as long as the reader. */
int situ_image_open(const void* bytes, size_t size, int format, situ_image_reader** out, situ_image_size* dims,
                    situ_image_text* error);
/* The same from a regular file. */
int situ_image_open_path(const char* path, size_t path_size, int format, situ_image_reader** out, situ_image_size* dims,
                         situ_image_text* error);
/* Decodes into rgb [height, width, 3]; `size` is its number of bytes. Once for a reader. */
int situ_image_read(situ_image_reader* reader, uint8_t* rgb, size_t size, situ_image_metadata* metadata,
                    situ_image_text* error);
void situ_image_free(situ_image_reader* reader);

#ifdef __cplusplus
}
#endif
