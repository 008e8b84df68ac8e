// The problem of block_sums.h for a file that is read from its first byte to its last, `read` bytes at a
// time, through the page cache or past it. It needs no order of blocks.
#pragma once

#include <algorithm>
#include <memory>

#include "experiments/ch05_storage/block_sums.h"
#include "experiments/ch05_storage/buffered_file.h"

namespace fathom::lab {

struct BlockScan : BlockSums {
  int64_t read;  // bytes, whole blocks
  std::shared_ptr<const BufferedFile> buffered = std::make_shared<BufferedFile>(*file);
  View<uint8_t, 1> read_buffer;  // use aligned(read_buffer): one read

  BlockScan(const Point& at, Arena& arena)
      : BlockSums(at, arena),
        read(at["read"]),
        read_buffer(arena.workspace<uint8_t>({read + ScratchFile::kAlignment})) {}
};

// `file`: p.file or p.buffered.
template <class File>
void scan(const BlockScan& p, const File& file) {
  uint8_t* buffer   = aligned(p.read_buffer);
  const int64_t end = p.contents.bytes();
  for (int64_t at = 0; at < end; at += p.read) {
    const int64_t bytes = std::min(p.read, end - at);
    file.read(buffer, bytes, at);
    for (int64_t done = 0; done < bytes; done += BlockSums::kBlock)
      p.out((at + done) / BlockSums::kBlock) = sum_of_block(buffer + done);
  }
}

}  // namespace fathom::lab
