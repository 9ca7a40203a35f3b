"""The SDK. The async client is written; the sync one is generated from it and checked."""
