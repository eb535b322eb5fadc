SELECT record, revision, made FROM records WHERE space = ?1 AND key = ?2;
