/**
 * Decompresses gzip in base64, of at most `maxBytes` decompressed bytes. Rejects with an error for other text and for
 * more bytes.
 */
export async function unpack(text: string, maxBytes = Number.POSITIVE_INFINITY): Promise<ArrayBuffer> {
  const packed = decodeBase64(text);
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

/** Decodes base64. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}
