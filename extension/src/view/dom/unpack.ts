/**
 * Decompresses gzip in base64, of at most `maxBytes` decompressed bytes. Rejects with an error for other text and for
 * more bytes.
 */
export async function unpack(text: string, maxBytes = Number.POSITIVE_INFINITY): Promise<ArrayBuffer> {
  const characters = atob(text);
  const packed = new Uint8Array(characters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = characters.charCodeAt(i);
  let bytes = 0;
  const limit = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      if (bytes > maxBytes) throw new Error(`it has more than ${maxBytes} bytes`);
      controller.enqueue(chunk);
    },
  });
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")).pipeThrough(limit);
  return new Response(stream).arrayBuffer();
}
