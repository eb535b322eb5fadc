RELEASE part;
